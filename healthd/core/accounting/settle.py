"""
A gang's account, brought up to date from what is recorded: its recoveries, the steps that were seen, and its root.

Only a step that was seen makes time productive, and a checkpoint that a recovery refuses takes it back. So the job's
code need not take part, and no log is read. All inputs are stored in the cluster, and the account says up to which
moment time is divided: when it is brought up to date twice, or by another controller, the result is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from healthd.core.accounting.recoveries import WAITING, Saving, enter, verified
from healthd.core.accounting.timeline import extend, milliseconds
from healthd.core.api import Pod, Recovery
from healthd.core.api.gpu_time import GangState, GpuTime, LossCause, Part
from healthd.core.api.kubernetes.gpu_names import MIG_RESOURCES
from healthd.core.api.model import ENDED
from healthd.core.checkpoint.precheck import usual_interval
from healthd.core.recovery.gang import GangView, Root, RootOutcome
from healthd.core.recovery.members import members, with_seats
from healthd.core.untrusted import number_or

SETTLE_EVERY = timedelta(minutes=5)
"""
An account is stored again when something happened to its gang, else at a step that was seen, this often at most: each
time is a write.
"""
SETTLE_STANDING = timedelta(hours=1)
"""The same for a gang that stands still: thousands may wait in a queue."""
CLOCKS = timedelta(minutes=1)
"""How far the clocks of the API server and of this machine may differ."""
WRONG_CLOCK = timedelta(hours=1)
"""An account may end so much later than now: an earlier controller had a clock that was ahead."""
MOST_GPUS = 1024
"""Of one member. A user may ask for any number."""


def settle(account: GpuTime | None, view: GangView, recoveries: Sequence[Recovery], now: datetime) -> GpuTime | None:
    """
    *account*, up to date; None before there is anything to count. *recoveries* are all of the gang, in any order.

    A recovery counts when it has ended: until then its causes and its resume point may change.
    """
    root = view.root
    if root is None:
        return account
    if account is None or not is_possible(account, root, now):
        return _begun(root, view, now)
    known = sorted((each for each in recoveries if each.status.timeline), key=lambda each: each.status.timeline[0].at)
    new = [each for each in known if milliseconds(each.status.timeline[0].at) > account.entered]
    for recovery in new:
        if recovery.status.phase not in ENDED:
            return account
        account = enter(account, recovery, saving_of(root), recovery.status.timeline[-1].at)
        account = replace(account, own_restarts=root.own_restarts)
    if root.suspended and root.stopped_by and account.state is not GangState.GAVE_UP:
        return account  # a recovery stopped it that is not known here, or the user took over: wait for what follows
    if new or account.world != root.world or account.state is not GangState.RUNNING:  # else no member is looked at
        account = _resized(account, root, view, is_ours=bool(new))
    return _observed(account, root, view, now)


def is_possible(account: GpuTime, root: Root, now: datetime) -> bool:
    """Whether *account* begins after its gang and ends before *now*. Its owner may write anything there."""
    is_before = root.created_at is not None and account.since < milliseconds(root.created_at - CLOCKS)
    return not is_before and account.until <= milliseconds(now + WRONG_CLOCK)


def with_real_size(account: GpuTime, view: GangView) -> GpuTime:
    """*account* with no more GPUs than the running members ask for, as its owner may write any number there."""
    if view.root is None or not _all_run(view.root, view):
        return account
    size = gpus_of(view)
    return replace(account, gpus=size + account.missing) if 0 < size < account.gpus - account.missing else account


def as_of(account: GpuTime, recovery: Recovery | None, saving: Saving, now: datetime) -> GpuTime:
    """
    *account* with what is known up to *now*, but not settled: the active *recovery*, or a gang that stands still.

    Training since the last step is not in it: nothing shows it yet.
    """
    if recovery is not None and recovery.status.timeline:
        return enter(account, recovery, saving, now)
    part = WAITING.get(account.state)
    return extend(account, milliseconds(now), part, account.run_cause) if part is not None else account


def saving_of(root: Root) -> Saving:
    """What is known about the checkpoints of *root*."""
    usual = usual_interval(root)
    return Saving(bool(root.options.checkpoint), usual // timedelta(milliseconds=1) if usual is not None else None)


def is_due(before: GpuTime | None, after: GpuTime) -> bool:
    """Whether *after* is to be stored now in place of *before*."""
    if before is None or _what_happened(before) != _what_happened(after):
        return True
    every = SETTLE_EVERY if after.state is GangState.RUNNING else SETTLE_STANDING
    return after.until - before.until >= every // timedelta(milliseconds=1)


def _what_happened(account: GpuTime) -> tuple[object, ...]:
    run = (account.state, account.run_since, account.stepped, account.own_restarts)
    return (*run, account.entered, account.gpus, account.missing)


def gpus_of(view: GangView) -> int:
    """GPUs of all members; 0 while there are none. In a gang without GPUs each member counts as one."""
    root = view.root
    if root is None:
        return 0
    asked = [gpus_of_pod(pod) for pod in with_seats(members(view), root)][: root.world]
    asked = asked if any(asked) else [1] * len(asked)
    return sum(asked) + (root.world - len(asked)) * max(asked) if asked else 0


def gpus_of_pod(pod: Pod) -> int:
    """GPUs that *pod* asks for. A request without a limit does not exist for them."""
    amounts = (amount for c in pod.spec.containers for name, amount in c.resources.limits.items() if _is_gpu(name))
    return min(sum(number_or(amount, 0) for amount in amounts), MOST_GPUS)


def _is_gpu(resource: str) -> bool:
    return resource.endswith(".com/gpu") or resource.startswith(MIG_RESOURCES)


def _begun(root: Root, view: GangView, now: datetime) -> GpuTime | None:
    """The account of a gang that was not known before. A gang that has made steps is in the middle of a run."""
    at, size = milliseconds(now), gpus_of(view)
    if not size:
        return None
    begun = GpuTime(since=at, start=at, own_restarts=root.own_restarts, world=root.world, full_world=root.world)
    state = _state(root, view, begun, is_restarted=False)
    begun = replace(begun, gpus=size, state=state, run_since=at, step=root.progress.step)
    return replace(begun, stepped=root.progress.step >= 0)


def _observed(account: GpuTime, root: Root, view: GangView, now: datetime) -> GpuTime:
    """*account* with what the root and its members show now."""
    restarted = _restarted_at(account, root, now)
    state = _state(root, view, account, is_restarted=restarted is not None)
    account = _with_progress(account, root)
    if state is account.state and restarted is None:
        return account if state is GangState.RUNNING else _closed(account, root, milliseconds(now))
    account = _closed(account, root, milliseconds(min(now, restarted or now)))
    by_itself = account.state is GangState.RESTARTING or (restarted is not None and account.state is GangState.RUNNING)
    return replace(
        account,
        state=state,
        run_since=max(account.until, milliseconds(now)) if state is GangState.RUNNING else account.run_since,
        run_cause=LossCause.UNKNOWN if by_itself or state is GangState.GAVE_UP else LossCause.USER,
        stepped=False,
        own_restarts=root.own_restarts,
    )


def _state(root: Root, view: GangView, account: GpuTime, *, is_restarted: bool) -> GangState:
    if root.ending is not RootOutcome.NOT_ENDED or root.deleting:
        return GangState.OVER
    if root.suspended:
        return GangState.GAVE_UP if root.stopped_by else GangState.SUSPENDED
    if account.state is GangState.RUNNING and not is_restarted:
        return account.state  # a member that fails is the beginning of a recovery
    if _all_run(root, view):
        return GangState.RUNNING
    return GangState.RESTARTING if account.state in (GangState.RUNNING, GangState.RESTARTING) else GangState.QUEUED


def _all_run(root: Root, view: GangView) -> bool:
    running = sum(pod.status.phase in ("Running", "Succeeded") for pod in with_seats(members(view), root))
    return running >= root.world > 0


def _restarted_at(account: GpuTime, root: Root, now: datetime) -> datetime | None:
    """When the gang was started again without a recovery that healthd knows; None: it was not."""
    if account.state is GangState.OVER:
        return None
    if root.own_restarts > account.own_restarts:
        return root.started_at or now
    began = root.started_at
    # A recovery that started it may not be known here yet, for a moment.
    is_certain = began is not None and (account.state is not GangState.RUNNING or now - began >= CLOCKS)
    is_new = began is not None and milliseconds(began - CLOCKS) > max(account.run_since, account.until)
    return began if is_certain and is_new else None


def _with_progress(account: GpuTime, root: Root) -> GpuTime:
    progress = root.progress
    if progress.at is None or progress.step <= account.step or milliseconds(progress.at) < account.run_since:
        return account
    return verified(account, milliseconds(progress.at), progress.step, saving_of(root).usual)


def _closed(account: GpuTime, root: Root, at: int) -> GpuTime:
    """*account* up to *at*, when what the gang did until then ended, or goes on while it stands still."""
    if account.state is GangState.OVER:
        return account
    if account.state is not GangState.RUNNING:
        return extend(account, at, WAITING[account.state], account.run_cause)
    if root.ending is RootOutcome.COMPLETE and account.step >= 0:
        return extend(account, at, Part.PRODUCTIVE)
    if root.ending is not RootOutcome.NOT_ENDED or root.deleting or not root.options.checkpoint:
        return extend(account, at, Part.UNVERIFIED)
    return extend(account, at, Part.REDONE, LossCause.USER if root.suspended else LossCause.UNKNOWN)


def _resized(account: GpuTime, root: Root, view: GangView, *, is_ours: bool) -> GpuTime:
    """*account* with the present size of the gang. A recovery leaves members out; a user wants fewer, or more."""
    size = gpus_of(view)
    is_same = size == account.gpus - account.missing or not _all_run(root, view)
    if not size or (root.world == account.world and is_same):
        return account
    full = max(account.full_world, root.world) if is_ours or root.world > account.world else root.world
    missing = -(-size // max(1, root.world)) * (full - root.world)
    return replace(
        account,
        world=root.world,
        full_world=full,
        gpus=size + missing,
        missing=missing,
        shrunk_by=account.run_cause if is_ours and account.run_cause is not LossCause.CAPACITY else account.shrunk_by,
    )
