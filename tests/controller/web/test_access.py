"""Who sees what: the API server's word counts, and nothing is open by default."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from healthd.cluster.port import Unavailable
from healthd.controller.web.access import KEPT_FOR, REUSED_FOR, Access, Namespaces, OpenAccess, Refused, access_of
from healthd.core.api import SubjectAccessReview, TokenReview, TokenReviewStatus, TokenUser
from healthd.core.api.kubernetes.reviews import AccessReviewStatus
from healthd.core.config import WebAccess, WebPolicy
from healthd.core.report.page.state import EVERYTHING, Scope
from healthd.telemetry.address import AddressError
from tests.fakes import ManualClock

SPACES = {"team-a", "team-b"}
ANN = {"Authorization": "Bearer ann"}


def spaces_of(*names: str) -> Namespaces:
    async def answer() -> set[str]:
        return set(names)

    return answer


class Reviews:
    """An API server that knows the tokens of *rights*: user -> what he may list, as `recoveries@team-a` or `nodes@`."""

    def __init__(self, **rights: set[str]) -> None:
        self.rights = rights
        self.asked: list[Any] = []
        self.down = False

    async def create(self, review: Any) -> Any:
        self.asked.append(review)
        if self.down:
            raise Unavailable("no route")
        if isinstance(review, TokenReview):
            known = review.spec.token in self.rights
            user = TokenUser(username=review.spec.token, groups=["readers"])
            return replace(review, status=TokenReviewStatus(authenticated=known, user=user if known else TokenUser()))
        assert isinstance(review, SubjectAccessReview)
        what = review.spec.resource_attributes
        allowed = f"{what.resource}@{what.namespace}" in self.rights.get(review.spec.user, set())
        return replace(review, status=AccessReviewStatus(allowed=allowed))


def access(reviews: Reviews, policy: WebPolicy | None = None, clock: ManualClock | None = None) -> Access:
    cluster: Any = reviews
    return access_of(policy or WebPolicy(address=":9402", access=WebAccess.TOKEN), cluster, clock or ManualClock())


async def scope(reviews: Reviews, headers: dict[str, str] = ANN) -> Scope:
    return (await access(reviews).admit(headers, spaces_of(*SPACES))).scope


async def test_a_viewer_sees_the_namespaces_that_he_may_read() -> None:
    seen = await scope(Reviews(ann={"recoveries@team-b"}))

    assert seen == Scope(namespaces=frozenset({"team-b"}), nodes=False)


async def test_who_may_read_all_namespaces_and_nodes_sees_everything() -> None:
    assert await scope(Reviews(ann={"recoveries@", "nodes@", "nodehealths@"})) == EVERYTHING


async def test_nodes_need_the_right_to_their_health_too() -> None:
    assert (await scope(Reviews(ann={"recoveries@", "nodes@"}))).nodes is False


async def test_who_may_read_nothing_is_refused() -> None:
    with pytest.raises(Refused, match="ann may list neither nodes nor") as refused:
        await scope(Reviews(ann=set()))

    assert refused.value.status == 403


@pytest.mark.parametrize(
    "headers", [{}, {"Authorization": "Basic ann"}, {"Authorization": "Bearer "}, {"Authorization": "Bearer bob"},
                {"Authorization": "Bearer " + "x" * 99_999}, {"X-Forwarded-User": "ann"}]
)  # fmt: skip
async def test_without_a_valid_token_nothing_is_shown(headers: dict[str, str]) -> None:
    with pytest.raises(Refused) as refused:
        await scope(Reviews(ann={"recoveries@"}), headers)

    assert refused.value.status == 401


async def test_answers_are_kept_for_a_time_and_no_longer() -> None:
    reviews, clock = Reviews(ann={"recoveries@"}), ManualClock()
    asking = access(reviews, clock=clock)
    for _ in range(5):
        await asking.admit(ANN, spaces_of(*SPACES))
    asked = len(reviews.asked)
    reviews.rights["ann"] = {"recoveries@team-a"}
    await clock.run_for(REUSED_FOR)

    assert asked == 3
    seen = await asking.admit(ANN, spaces_of(*SPACES))
    assert seen.scope == Scope(namespaces=frozenset({"team-a"}), nodes=False)


async def test_no_answer_counts_for_more_than_two_minutes_after_it_was_given() -> None:
    """A stream that began with an answer as old as that saw on for four."""
    reviews, clock = Reviews(ann={"recoveries@"}), ManualClock()
    asking, asked_at = access(reviews, clock=clock), clock.now()
    first = await asking.admit(ANN, spaces_of(*SPACES))
    await clock.run_for(REUSED_FOR - timedelta(seconds=1))
    again = await asking.admit(ANN, spaces_of(*SPACES))

    assert first.until == again.until == asked_at + KEPT_FOR


async def test_an_answer_of_the_future_is_not_used_again() -> None:
    reviews, later = Reviews(ann={"recoveries@"}), ManualClock()
    await later.run_for(timedelta(hours=1))
    clock = ChangedClock(later)
    asking = access(reviews, clock=clock)  # type: ignore[arg-type]
    await asking.admit(ANN, spaces_of(*SPACES))
    clock.beneath = ManualClock()  # somebody sets the clock back
    await asking.admit(ANN, spaces_of(*SPACES))

    assert len(reviews.asked) == 6


class ChangedClock:
    """A clock that somebody sets."""

    def __init__(self, beneath: ManualClock) -> None:
        self.beneath = beneath

    def now(self) -> datetime:
        return self.beneath.now()


async def test_who_may_see_nothing_costs_no_question_at_each_request() -> None:
    reviews = Reviews(ann=set())
    asking = access(reviews)
    for _ in range(5):
        with pytest.raises(Refused, match="may list neither nodes nor"):
            await asking.admit(ANN, spaces_of(*SPACES))

    assert len(reviews.asked) == 5


async def test_a_new_namespace_is_asked_about_at_once() -> None:
    reviews = Reviews(ann={"recoveries@team-a", "recoveries@team-c"})
    asking = access(reviews)
    await asking.admit(ANN, spaces_of(*SPACES))

    seen = (await asking.admit(ANN, spaces_of(*SPACES, "team-c"))).scope
    assert seen.namespaces == frozenset({"team-a", "team-c"})


async def test_an_api_server_that_does_not_answer_opens_nothing() -> None:
    reviews = Reviews(ann={"recoveries@"})
    reviews.down = True
    with pytest.raises(Refused) as refused:
        await scope(reviews)

    assert refused.value.status == 503


async def test_behind_a_proxy_the_user_is_who_it_names(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s3cret\n")
    policy = WebPolicy(address=":9402", access=WebAccess.PROXY, proxy_secret_file=str(tmp_path / "secret"))
    reviews = Reviews(ann={"recoveries@"})
    asking = access(reviews, policy)
    named = {"X-Forwarded-User": "ann", "X-Forwarded-Groups": "a, b"}
    seen = (await asking.admit({**named, "X-Healthd-Proxy-Secret": "s3cret"}, spaces_of(*SPACES))).scope

    assert seen.namespaces is None
    assert reviews.asked[0].spec.groups == ["a", "b", "system:authenticated"]
    for headers in (named, {**named, "X-Healthd-Proxy-Secret": "wrong"}, {"X-Healthd-Proxy-Secret": "s3cret"}):
        with pytest.raises(Refused):
            await asking.admit(headers, spaces_of(*SPACES))


@pytest.mark.parametrize("address", [":9402", "0.0.0.0:9402", "10.1.2.3:9402", "[::]:9402", "healthd.example:9402"])
@pytest.mark.parametrize("mode", [WebAccess.LOCAL, WebAccess.PROXY])
def test_a_page_without_a_login_is_not_served_to_others(address: str, mode: WebAccess) -> None:
    with pytest.raises(AddressError, match="is open to others"):
        access(Reviews(), WebPolicy(address=address, access=mode))


@pytest.mark.parametrize("address", ["127.0.0.1:9402", "[::1]:9402", "localhost:9402"])
def test_it_is_served_to_this_machine(address: str) -> None:
    assert isinstance(access(Reviews(), WebPolicy(address=address)), OpenAccess)
