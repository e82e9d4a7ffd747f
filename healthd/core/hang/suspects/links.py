"""
Which rank is behind lost connections, and for which rank others wait, by the TCP connections of all ranks. Pure.

Each rank lists its own connections. Two ends belong together where one's local endpoint is the other's remote one. A
connection between ranks is lost where an end sends again and again without an answer. By itself that says which two
ranks cannot talk, and not which of them is at fault: that takes the other connections of both.

Ranks of one node share its ports, so between nodes it is nodes that are compared. Nothing is said unless the
connections of every rank are known: those that are not known may be the ones that work.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from healthd.core.hang.suspects.evidence import Connection, RankEvidence

_MOST_NAMED = 4
"""Lost connections that are named in a reason."""

Place = str
Pair = frozenset[int]
"""Two ranks."""


class LostLinks(NamedTuple):
    """What lost connections say."""

    suspects: Mapping[int, Suspicion] = {}
    """By rank."""
    reason: str = ""
    """Why there is none although connections are lost. Empty: there are suspects, or no connection is lost."""


class Suspicion(NamedTuple):
    """Why a rank is at fault. *is_clear*: one fault elsewhere would show otherwise."""

    words: str
    is_clear: bool


class _Links:
    """The connections between ranks, as those between places."""

    def __init__(self, links: Mapping[Pair, Mapping[int, int]], place: Callable[[int], Place]) -> None:
        self.peers: dict[Place, set[Place]] = defaultdict(set)
        self.lost: dict[frozenset[Place], set[Place]] = defaultdict(set)
        """Pairs of places that cannot talk, and which of the two have sent what is not acknowledged."""
        self.lost_at: dict[Place, set[Place]] = defaultdict(set)
        """With whom a place cannot talk."""
        for pair, unacknowledged in links.items():
            one, other = (place(rank) for rank in pair)
            if one == other:
                continue
            self.peers[one].add(other)
            self.peers[other].add(one)
            if unacknowledged:
                self.lost_at[one].add(other)
                self.lost_at[other].add(one)
                self.lost[frozenset((one, other))] |= {place(rank) for rank in unacknowledged}

    def works(self, place: Place) -> bool:
        """Whether a connection of it is not known to be lost."""
        return self.lost_at[place] != self.peers[place]


def find_lost(ranks: Sequence[RankEvidence]) -> LostLinks:
    """The ranks that are behind lost connections. Cost: linear in the connections."""
    if any(each.network is None for each in ranks):
        return LostLinks()
    links = _links(ranks)
    lost = {pair: sent for pair, sent in links.items() if sent}
    if not lost:
        return LostLinks()
    nodes = {each.rank: each.node or f"rank {each.rank}" for each in ranks}
    across = _Links(links, nodes.__getitem__)
    places = nodes if across.lost else {each.rank: str(each.rank) for each in ranks}
    between = across if across.lost else _Links(links, places.__getitem__)
    found = _at_fault(between)
    if found is None:
        return LostLinks(reason=_reason(ranks, lost))
    at, suspicion = found
    return LostLinks({rank: suspicion for pair in lost for rank in pair if places[rank] == at})


def _at_fault(links: _Links) -> tuple[Place, Suspicion] | None:
    """The one place that is an end of every lost connection, where the other ends are not as likely."""
    common = frozenset.intersection(*links.lost)
    if len(links.lost) == 1:
        cut_off = [place for place in common if _is_cut_off(place, links)]
        return (cut_off[0], Suspicion(_ONLY, is_clear=False)) if len(cut_off) == 1 else None
    for place in common:
        lost, known = links.lost_at[place], links.peers[place]
        is_clear = lost == known or all(links.works(other) for other in lost)
        if is_clear or 2 * len(lost) > len(known):
            which = f"its connections with {len(lost):,} of {len(known):,} peers are lost"
            return place, Suspicion(f"{which}: what is sent is not acknowledged", is_clear)
    return None


_ONLY = "its only connection is lost: what its peer sends is not acknowledged, and the peer's others are not lost"


def _is_cut_off(place: Place, links: _Links) -> bool:
    """
    Whether its only peer has sent to it in vain, and has other connections, none of which is lost.

    That *place* itself sent in vain is not enough: the peer may be lost to all, and its others may have sent what they
    had to send before that.
    """
    if len(links.peers[place]) != 1:
        return False
    (peer,) = links.peers[place]
    return len(links.peers[peer]) > 1 and peer in links.lost[frozenset((place, peer))]


def _reason(ranks: Sequence[RankEvidence], lost: Mapping[Pair, Mapping[int, int]]) -> str:
    names = {each.rank: each.pod or f"rank {each.rank}" for each in ranks}
    pairs = sorted(tuple(sorted(pair)) for pair in lost)
    spoken = ", ".join(f"{names[one]} and {names[other]}" for one, other in pairs[:_MOST_NAMED])
    if len(pairs) == 1:
        size = sum(lost[frozenset(pairs[0])].values())
        return f"the connection of {spoken} is lost ({size:,} bytes are not acknowledged); nothing says at which end"
    more = f" and {len(pairs) - _MOST_NAMED:,} more" if len(pairs) > _MOST_NAMED else ""
    return f"connections are lost, and no rank is at fault for all of them: {spoken}{more}"


def find_awaited(ranks: Sequence[RankEvidence]) -> dict[int, int]:
    """
    Ranks for which others wait while they do something else, and how many wait so.

    A rank that waits for others itself, or may, is none.
    """
    owners = _Owners(ranks)
    waiting: dict[int, set[int]] = defaultdict(set)
    for each, connection in _all(ranks):
        if connection.is_awaited and (peer := owners.exactly(connection.remote, each)) is not None:
            waiting[peer].add(each.rank)
    elsewhere = {each.rank for each in ranks if each.network is not None and each.network.is_elsewhere}
    return {rank: len(those) for rank, those in waiting.items() if rank in elsewhere}


def _links(ranks: Sequence[RankEvidence]) -> dict[Pair, dict[int, int]]:
    """The pairs of ranks that have a connection: bytes that are lost, by the rank that sent them."""
    owners = _Owners(ranks)
    links: dict[Pair, dict[int, int]] = defaultdict(dict)
    for each, connection in _all(ranks):
        peer = owners.of(connection.remote, each)
        if peer is None or peer == each.rank:
            continue
        sent = links[frozenset((each.rank, peer))]
        if connection.unacknowledged:
            sent[each.rank] = sent.get(each.rank, 0) + connection.unacknowledged
    return links


def _all(ranks: Sequence[RankEvidence]) -> Iterator[tuple[RankEvidence, Connection]]:
    for each in ranks:
        for connection in each.network.connections if each.network is not None else ():
            yield each, connection


class _Owners:
    """Whose an endpoint is, by the local endpoints of all ranks."""

    def __init__(self, ranks: Sequence[RankEvidence]) -> None:
        self._of_endpoint: dict[tuple[int, str], set[int]] = defaultdict(set)
        self._of_address: dict[str, set[int]] = defaultdict(set)
        for each, connection in _all(ranks):
            self._of_endpoint[_scope(connection.local, each), connection.local].add(each.rank)
            if not is_loopback(connection.local):
                self._of_address[address_of(connection.local)].add(each.rank)

    def exactly(self, endpoint: str, seen_by: RankEvidence) -> int | None:
        """The rank that has *endpoint*. None: no rank, or several, as where one was forked off another."""
        return _only(self._of_endpoint.get((_scope(endpoint, seen_by), endpoint), ()))

    def of(self, endpoint: str, seen_by: RankEvidence) -> int | None:
        """The same; where no rank has it, the only one with its address: of many connections each lists a part."""
        if (_scope(endpoint, seen_by), endpoint) in self._of_endpoint:
            return self.exactly(endpoint, seen_by)
        return _only(self._of_address.get(address_of(endpoint), ()))


def _only(ranks: Collection[int]) -> int | None:
    return next(iter(ranks)) if len(ranks) == 1 else None


def address_of(endpoint: str) -> str:
    """The address of an endpoint, without its port."""
    return endpoint.rpartition(":")[0]


def is_loopback(endpoint: str) -> bool:
    """Whether it is another place in each network namespace."""
    return endpoint.startswith(("127.", "[::1]"))


def _scope(endpoint: str, of: RankEvidence) -> int:
    return of.network.namespace if of.network is not None and is_loopback(endpoint) else 0
