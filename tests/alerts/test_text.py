"""The words of an incident, and how they are cut."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from healthd.alerts.text import body, cut, cut_bytes, digest, digest_headline, headline, nodes
from healthd.core.api.incidents import Severity
from tests.alerts.incidents import an_incident, resolved


def test_a_page_says_what_since_when_where_what_was_done_and_what_is_left() -> None:
    assert f"{headline(an_incident())}\n{body(an_incident(), 2000)}" == (
        "[PAGE] job/llama waits for a spare\n"
        "Since 2026-01-01 03:12:00 UTC\n"
        "Gang job/llama · Namespace team-a · Team research · Nodes n7, n9\n"
        "What happened: GPU 3 of n7 fell off the bus.\n"
        "What healthd did: healthd stopped the gang.\n"
        "What is left to do: Add a spare node.\n"
        "Ask why: healthd explain job/llama -n team-a\n"
        "Runbook: recovery-held"
    )


def test_the_end_is_said_first() -> None:
    ended = resolved(an_incident())

    assert headline(ended) == "[RESOLVED] job/llama waits for a spare"
    assert body(ended, 2000).startswith("Since 2026-01-01 03:12:00 UTC, resolved 2026-01-01 04:12:00 UTC")


def test_what_is_empty_is_left_out() -> None:
    bare = an_incident(happened="", did="", todo="", command="", runbook="", gang="", namespace="", team="", nodes=())

    assert body(bare, 2000) == "Since 2026-01-01 03:12:00 UTC"


def test_many_nodes_are_counted() -> None:
    many = an_incident(nodes=tuple(f"n{number}" for number in range(750)))

    assert nodes(many).endswith("n18, n19 and 730 more")


def test_a_digest_has_pages_first_and_counts_what_does_not_fit() -> None:
    notice = an_incident(severity=Severity.NOTICE, title="n1 was repaired")
    incidents = [notice, resolved(an_incident()), an_incident()]

    assert digest_headline(incidents) == "healthd: 3 incidents (1 [NOTICE], 1 [PAGE], 1 [RESOLVED])"
    assert digest(incidents, 1000).splitlines() == [
        "[PAGE] job/llama waits for a spare",
        "[NOTICE] n1 was repaired",
        "[RESOLVED] job/llama waits for a spare",
    ]
    assert digest(incidents, 60).splitlines() == ["[PAGE] job/llama waits for a spare", "… and 2 more"]


def test_control_characters_and_direction_overrides_are_spelled_out() -> None:
    bad = an_incident(title="a\x1b[31m\nb", happened="x\u202ey")

    assert headline(bad) == "[PAGE] a\\u001b[31m b"
    assert "x\\u202ey" in body(bad, 2000)


@settings(max_examples=50)
@given(st.text("ab é集🔥…\n", max_size=50), st.integers(0, 60))
def test_a_cut_keeps_its_limit_and_is_a_beginning(text: str, most: int) -> None:
    characters, in_bytes = cut(text, most), cut_bytes(text, most)

    assert len(characters) <= most
    assert len(in_bytes.encode()) <= most
    assert all(one == text or text.startswith(one.removesuffix("…")) for one in (characters, in_bytes))


def test_a_cut_of_bytes_is_between_characters() -> None:
    assert cut_bytes("集集集", 8) == "集…"
    assert cut_bytes("集集集", 9) == "集集集"
    assert cut_bytes("🔥🔥", 6) == ""
