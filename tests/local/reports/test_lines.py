"""The log as lines for the person at the terminal."""

from __future__ import annotations

from healthd.local.reports.lines import Lines, sentence


def test_what_concerns_no_one_but_developers_makes_no_line() -> None:
    assert sentence({"event": "recovery.phase", "level": "info", "phase": "Fencing"}) == ""
    assert sentence({"event": "recovery.opened", "level": "warning", "why": "rank 1 was killed"}) == ""


def test_a_warning_without_a_sentence_of_its_own_is_reported_all_the_same() -> None:
    event = {"event": "some.trouble", "level": "warning", "disk": "sda", "why": "it is full", "logger": "x"}

    assert sentence(event) == "some trouble disk=sda; it is full"


def test_so_is_one_whose_sentence_lacks_a_field() -> None:
    assert sentence({"event": "run.waits", "level": "warning", "why": "no slot"}) == "run waits; no slot"


def test_a_line_has_the_time_and_a_warning_says_so() -> None:
    event = {"event": "checkpoints.unread", "level": "warning", "timestamp": "2026-01-01T12:00:00Z", "why": "gone"}

    line = Lines()(event)

    assert line.startswith("[healthd] ")
    assert line.endswith(" warning: the checkpoints cannot be read: gone")


def test_what_is_said_cannot_steer_the_terminal() -> None:
    event = {"event": "some.trouble", "level": "error", "why": "\x1b[2J gone"}

    assert "\x1b" not in Lines()(event)


def test_colours_are_for_terminals() -> None:
    event = {"event": "some.trouble", "level": "error", "why": "gone"}

    assert "\x1b[31merror: some trouble; gone\x1b[0m" in Lines(colours=True)(event)


def test_what_is_known_of_an_old_record_is_reported_with_the_slot_that_it_took() -> None:
    event = {"event": "node.quarantined", "level": "warning", "node": "slot-0", "finding": "xid-79", "why": "Gone."}

    assert sentence(event) == "slot-0 is out of service for xid-79: Gone. When it is repaired: `healthd repair slot-0`"
    assert sentence({**event, "note": "It is old."}) == "slot-0 is out of service for xid-79: Gone. It is old."


def test_a_finding_is_reported_in_the_words_of_one_server() -> None:
    bad = {"level": "warning", "node": "slot-0", "finding": "xid-79"}
    over = "the budget of cluster, 2 nodes, is used up"

    assert "Reboot this server. When" in sentence({**bad, "event": "node.quarantined", "why": "Reboot the node."})
    assert sentence({**bad, "event": "quarantine.refused", "why": over}) == (
        "slot-0 should be out of service for xid-79, and may not: the budget, 2 slots (quarantine.budget), is used up"
    )


def test_a_stop_names_the_signal_that_asked_for_it() -> None:
    event = {"event": "run.stops", "level": "info", "by": "SIGTERM came", "grace": "30 s"}

    assert sentence(event).startswith("SIGTERM came: the ranks are asked to end, and get 30 s")
    assert sentence({**event, "by": ""}).startswith("the ranks are asked to end")


def test_a_failed_notification_says_that_the_run_goes_on_only_while_it_does() -> None:
    event = {"event": "notify.failed", "level": "warning", "target": "mail", "why": "it ended with exit code 3"}

    assert sentence({**event, "note": "the run goes on"}).endswith("with exit code 3; the run goes on")
    assert sentence({**event, "note": ""}) == "--notify mail failed: it ended with exit code 3"
