"""
Which processes of a pod are ranks: a pod may have one for each of its GPUs, with launchers, shells and loaders around.

Launchers tell each rank its number by a variable (`RANK`, `LOCAL_RANK`), which all processes below it inherit. So a
rank is all processes with the same mark but launchers, which may have that of one of their ranks. The first of them
that has worked much is the one that trains.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from statistics import median
from typing import NamedTuple

NUMBERS = "RANK", "LOCAL_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"
"""The variables by which launchers tell a rank its number, in the order in which they are looked at."""
LOCAL = NUMBERS.index("LOCAL_RANK")
MOST_RANKS = 16
"""Of one pod that are asked."""
LEADS = 0.2
"""Of the processor time of the busiest in its tree, or of its peers. Shells and launchers have less."""
DEEPEST = 32
"""Processes above a rank that may be launchers. A user can make a chain of thousands."""
LAUNCHES = 0.5
"""Of the processor time of its busiest rank that a launcher has at most."""


class PodTask(NamedTuple):
    """One process of a pod."""

    pid: int
    parent: int
    cpu: float
    """Seconds of processor time so far."""
    mark: str = ""
    """
    What `NUMBERS` are, a word for each; `-`: that one is not set. Empty: none is, or they
    cannot be read.
    """
    port: str = ""
    """At which its gang meets, as its launcher says it."""
    started: int = 0
    """In clock ticks since boot: a number that is used again belongs to another process."""


def rank_processes(tasks: Sequence[PodTask]) -> list[PodTask]:
    """The process of each rank of a pod; `MOST_RANKS` at most, in the order of their trees."""
    return _found(tasks).ranks


class _Found(NamedTuple):
    """The ranks in the order of their trees, and the processes above them that are none."""

    ranks: list[PodTask]
    launchers: frozenset[int] = frozenset()
    started_by_first: bool = False
    """The first one has started the others, without a launcher."""


def no_command(pid: int) -> bool:  # noqa: ARG001 - the shape of `is_launcher`
    """No process is known to be a launcher by its command."""
    return False


def _found(tasks: Sequence[PodTask], is_launcher: Callable[[int], bool] = no_command) -> _Found:
    first = _first_rank(tasks, is_launcher)
    tasks = _marked(tasks, *first) if first is not None else tasks
    known, children = {task.pid: task for task in tasks}, _children(tasks)
    tops = [task for task in tasks if _begins_tree(task, known)]
    if not any(task.mark for task in tops):
        return _Found([_leading(list(_tree(top, children))) for top in tops[:MOST_RANKS]])
    launchers = frozenset(pid for task in tops if task.mark for pid in _above(task, known))
    launchers -= {first[0].pid} if first is not None else set()
    trees: dict[str, list[PodTask]] = {}
    for task in tasks:
        if task.mark and task.pid not in launchers and _begins_tree(task, known, launchers):
            trees.setdefault(task.mark, []).extend(_tree(task, children))
    return _Found([_leading(tree) for tree in [*trees.values()][:MOST_RANKS]], launchers, first is not None)


def _first_rank(tasks: Sequence[PodTask], is_launcher: Callable[[int], bool]) -> tuple[PodTask, str] | None:
    """
    The first rank, where it has started the others itself, and its mark among theirs. It has worked, too, and their
    numbers begin with 1: Lightning starts its ranks so.
    """
    children = _children(tasks)
    for parent in tasks:
        below = [task for task in children[parent.pid] if task.mark and not _is_alike(task, parent)]
        mark = _mark_of_first(parent.mark, below)
        if mark and not is_launcher(parent.pid):
            worked = median(_leading(list(_tree(task, children))).cpu for task in below)
            if parent.cpu >= LEADS * worked:
                return parent, mark
    return None


def _is_alike(task: PodTask, parent: PodTask) -> bool:
    """A loader has all that its rank has. One of another gang meets elsewhere."""
    return (task.mark, task.port) == (parent.mark, parent.port)


def _mark_of_first(own: str, below: Sequence[PodTask]) -> str:
    """
    Its mark, with number 0 in the place in which those *below* have the numbers from 1 on. Empty: they have not. The
    number on the node decides where there is one: on the second node of two the only rank of a launcher is rank 1.
    """
    places = [*zip(*(task.mark.split() for task in below), strict=False)]
    local = [LOCAL] if len(places) > LOCAL and "-" not in places[LOCAL] else range(len(places))
    for place in local:
        count = _count_from_one(places[place], [task.started for task in below])
        marks = own.split() or ["-"] * len(places)
        if count > (0 if place == LOCAL else 1) and marks[place] in ("0", "-"):
            return " ".join(["0" if at == place else word for at, word in enumerate(marks)])
    return ""


def _count_from_one(words: Sequence[str], started: Sequence[int]) -> int:
    """
    How many have the numbers from 1 on, each once. 0: they have others. What has number 0 and was started after all of
    these is a helper of the first rank, to which it has given what is now in its own environment.
    """
    if not all(map(str.isdecimal, words)):
        return 0
    others = [at for word, at in zip(words, started, strict=True) if int(word)]
    firsts = [at for word, at in zip(words, started, strict=True) if not int(word)]
    is_from_one = {*map(int, words)} - {0} == {*range(1, len(others) + 1)}
    return len(others) if is_from_one and (not firsts or min(firsts) > max(others, default=0)) else 0


def _marked(tasks: Sequence[PodTask], first: PodTask, mark: str) -> list[PodTask]:
    own = {task.pid for task in _tree(first, _children(tasks))}
    return [task._replace(mark=mark) if task.pid in own else task for task in tasks]


def _children(tasks: Sequence[PodTask]) -> dict[int, list[PodTask]]:
    found: dict[int, list[PodTask]] = defaultdict(list)
    for task in tasks:
        found[task.parent].append(task)
    return found


class Launched(NamedTuple):
    """What a launcher started."""

    ranks: Mapping[int, PodTask]
    """By number."""
    launchers: frozenset[int]
    """The processes above them, by pid."""


def launched_ranks(tasks: Sequence[PodTask], is_launcher: Callable[[int], bool]) -> Launched | None:
    """
    The ranks that a launcher started. None: there is none, as where a program that trains starts further ones with
    numbers of their own now and then. *is_launcher*: whether a process is one, or a shell around one, by its command.
    One that is not known by that is a launcher if it has used less than its ranks have.

    The launcher of a single rank may have the number of that, but what started it meets at another port.
    """
    found = _launched(tasks, is_launcher)
    if found is not None and (_used_little(found, tasks) or all(map(is_launcher, found.launchers))):
        return found
    apart = [task._replace(mark=f"{task.mark} :{task.port}") if task.mark else task for task in tasks]
    found = _launched(apart, is_launcher)
    return found if found is not None and all(map(is_launcher, found.launchers)) else None


def _launched(tasks: Sequence[PodTask], is_launcher: Callable[[int], bool]) -> Launched | None:
    ranks, launchers, started_by_first = _found(tasks, is_launcher)
    if not launchers and not started_by_first:
        return None
    numbered = zip(rank_numbers([rank.mark for rank in ranks]), ranks, strict=True)
    return Launched(dict(sorted(numbered)), launchers)


def _used_little(found: Launched, tasks: Sequence[PodTask]) -> bool:
    launchers = sum(task.cpu for task in tasks if task.pid in found.launchers)
    return launchers < LAUNCHES * max((rank.cpu for rank in found.ranks.values()), default=0.0)


def rank_numbers(marks: Sequence[str]) -> list[int]:
    """The number of each rank: by the first variable that tells all of them apart, else by their order."""
    for words in zip(*map(str.split, marks), strict=False):
        if all(map(str.isdecimal, words)) and len(numbers := dict.fromkeys(map(int, words))) == len(marks):
            return [*numbers]
    return [*range(len(marks))]


def _begins_tree(task: PodTask, known: Mapping[int, PodTask], launchers: Collection[int] = ()) -> bool:
    """Whether no process above it in the pod is of the same rank."""
    parent = known.get(task.parent)
    return parent is None or parent.mark != task.mark or parent.pid in launchers


def _above(task: PodTask, known: Mapping[int, PodTask]) -> Iterator[int]:
    """The processes above it in the pod. A launcher may have a mark of its own, as the launcher of its node."""
    seen = {task.pid}
    while (parent := known.get(task.parent)) is not None and parent.pid not in seen and len(seen) <= DEEPEST:
        seen.add(parent.pid)
        yield parent.pid
        task = parent


def _tree(top: PodTask, children: Mapping[int, Sequence[PodTask]]) -> Iterator[PodTask]:
    """*top* and those below it of the same rank, those closer to it first."""
    waiting, seen = [top], {top.pid}
    while waiting:
        task = waiting.pop(0)
        yield task
        below = [child for child in children.get(task.pid, ()) if child.mark == top.mark and child.pid not in seen]
        seen |= {child.pid for child in below}
        waiting += below


def _leading(tree: Sequence[PodTask]) -> PodTask:
    most = max(task.cpu for task in tree)
    return next(task for task in tree if task.cpu >= LEADS * most)
