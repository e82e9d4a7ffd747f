"""
When to ask agents for the newest minutes of a gang of which a rank may have become slow, and which agents.

A pause lasts for up to a minute, and most suspects are none by then. So a question costs as little as it can: first a
few agents are asked for one answer, when a pause would be over; then more of them until the rank can be named.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from healthd.core.hang.work.suspects import PEERS

OLD = timedelta(seconds=68)
"""How long a rank is suspected before anything is asked: a pause of a minute is over."""
SHOWN = timedelta(seconds=58)
"""For how long windows have to show that it is slow before more than one answer is asked for."""
CLOSE = timedelta(seconds=88)
"""How long it is suspected before that: soon it can be named."""
FIRST_ENDS = timedelta(seconds=104)
"""How long it is suspected when the first such question ends. Many are none by then, and the second one is spared."""
ENDS = timedelta(seconds=125)
"""The same of the second one: the newest minutes name it, or they do not."""
LATER = timedelta(seconds=165)
"""How long it is suspected before nothing is asked any more: what agents write anyway is enough."""
LATE = timedelta(seconds=275), timedelta(seconds=335)
"""How long a rank that is still slow is suspected when one more answer may name it by the newest five minutes. That is
for noisy ranks, and for rank 0, which is asked about only then."""
LATE_FOR = timedelta(seconds=30)
"""For how long after each of these it is asked about."""
ONE_ANSWER = timedelta(seconds=6)
"""How long agents are asked for one answer: one window of 5 s ends in it."""
AT_LEAST = timedelta(seconds=10)
"""How long they are asked for several, at least."""
BETWEEN = timedelta(seconds=5)
"""After the end of a question, before the next one: its last answers are on their way. The second of the questions
that name a rank follows at once."""
AGAIN = timedelta(seconds=12)
"""After a question for one answer about a rank, before the next one about it: until `ENDS`."""
AGAIN_LATER = timedelta(seconds=30)
"""And after that."""
ASKED = 16
"""Agents at most. More peers tell no more of one rank."""
AN_HOUR = timedelta(hours=1)
MOST = 60
"""Questions about eight ranks in an hour."""
UNANSWERED = 3
"""Questions without an answer, after which nothing is asked for an hour: its agents are of an older healthd."""


class Doubt(NamedTuple):
    """A rank that may be slow."""

    rank: str
    since: datetime
    until: datetime
    """The end of the newest window that shows it."""


class Questions:
    """Those about one gang of so many *ranks*."""

    def __init__(self, ranks: int) -> None:
        self._until: datetime | None = None
        self._about: dict[str, datetime] = {}
        """When one answer was asked for, by rank."""
        self._asked: deque[datetime] = deque(maxlen=MOST * max(1, ranks // 8))
        self._unanswered = 0

    def answered(self) -> None:
        """An agent has published the newest minutes."""
        self._unanswered = 0

    def is_open(self, now: datetime) -> bool:
        """Whether agents are asked, or were until just now."""
        return self._until is not None and now < self._until + BETWEEN

    def next(
        self, doubts: Sequence[Doubt], wrote: Mapping[str, datetime], now: datetime, lasting: Sequence[Doubt] = ()
    ) -> dict[str, datetime]:
        """
        Until when the agents of which ranks are to publish the newest minutes, from now on. Empty: nothing is asked.
        *wrote*: when the agent of each rank wrote last. *lasting*: those that have been slow for minutes.
        """
        if (self._until is not None and now < self._until) or self._is_too_much(now):
            return {}
        late = [doubt for doubt in lasting if any(at <= now - doubt.since < at + LATE_FOR for at in LATE)]
        for doubt in [*doubts, *late]:
            if asked := self._ask(doubt, wrote, now):
                self._until = max(asked.values())
                self._asked.append(now)
                self._unanswered += 1
                return asked
        return {}

    def _ask(self, doubt: Doubt, wrote: Mapping[str, datetime], now: datetime) -> dict[str, datetime]:
        age = now - doubt.since
        if age < OLD or LATER < age < LATE[0] or (self.is_open(now) and not FIRST_ENDS <= age < ENDS):
            return {}
        if age < ENDS and doubt.until - doubt.since >= SHOWN:
            ends = FIRST_ENDS if age + AT_LEAST <= FIRST_ENDS else ENDS
            return _asked(doubt, wrote, ASKED, max(now + AT_LEAST, doubt.since + ends)) if age >= CLOSE else {}
        before = self._about.get(doubt.rank)
        if before is not None and now - before < (AGAIN if age < ENDS else AGAIN_LATER):
            return {}
        self._about[doubt.rank] = now
        return _asked(doubt, wrote, PEERS + 1 if age < ENDS else ASKED, now + ONE_ANSWER)

    def _is_too_much(self, now: datetime) -> bool:
        if self._unanswered >= UNANSWERED and now - self._asked[-1] < AN_HOUR:
            return True
        return len(self._asked) == self._asked.maxlen and now - self._asked[0] < AN_HOUR


def _asked(doubt: Doubt, wrote: Mapping[str, datetime], count: int, until: datetime) -> dict[str, datetime]:
    """The suspect, and the peers whose agents wrote last: of these the newest windows are known best."""
    peers = sorted((rank for rank in wrote if rank != doubt.rank), key=lambda rank: wrote[rank], reverse=True)
    return dict.fromkeys([doubt.rank, *peers[: count - 1]], until)
