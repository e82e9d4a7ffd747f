"""What the GPUs of a gang, or the slots of a run, were used for, in words for `healthd explain`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from healthd.core.accounting.figures import Figures, Loss, figures
from healthd.core.accounting.settle import as_of, saving_of
from healthd.core.accounting.timeline import moment
from healthd.core.api import Recovery
from healthd.core.api.gpu_time import GpuTime, Part
from healthd.core.checkpoint.precheck import spoken
from healthd.core.recovery.gang import Root

SHOWN_LOSSES = 6
_HOUR = 3_600_000


def gpu_time_lines(root: Root, active: Recovery | None, now: datetime) -> list[str]:
    """The account of *root* with its *active* recovery up to *now*; nothing where there is no account yet."""
    if root.gpu_time is None or root.invalid:
        return []
    account = as_of(root.gpu_time, active, saving_of(root), now)
    found = figures([account])
    return list(_lines(account, found, root.terms.counted)) if found.whole else []


def _lines(account: GpuTime, found: Figures, counted: str) -> Iterator[str]:
    known = timedelta(milliseconds=account.until - account.since)
    now = f"{account.gpus} {counted}{'s' if account.gpus != 1 else ''} now"
    up_to = f"up to {moment(account.until):%Y-%m-%d %H:%M:%S} UTC"
    if found.ettr is not None and (found.productive or found.lost):
        yield f"trained {_share(found.ettr)} of the time that it was to train (ETTR), {up_to}"
        up_to = "up to then"
    rest = [(found.amounts[Part.UNVERIFIED], "not verified by a step"), (found.not_ours, "queued or suspended")]
    parts = [(found.productive, "productive"), (found.lost, "lost"), *rest]
    said = ", ".join(f"{_hours(amount)} {name}" for amount, name in parts if amount)
    yield f"{counted}-hours in {spoken(known)} {up_to}, {now}: {said}"
    losses = found.losses()
    yield from (_loss(loss) for loss in losses[:SHOWN_LOSSES])
    if len(losses) > SHOWN_LOSSES:
        yield f"lost {_hours(sum(loss.gpu_ms for loss in losses[SHOWN_LOSSES:]))} in other ways"


def _loss(loss: Loss) -> str:
    return f"lost {_hours(loss.gpu_ms)}: {loss.part.value.replace('_', ' ')}, cause {loss.cause}"


def _share(ratio: float) -> str:
    """Rounded down: 99.96 % is not all of it."""
    return f"{int(ratio * 1000) / 10} %"


def _hours(gpu_ms: int) -> str:
    hours = gpu_ms / _HOUR
    return f"{hours:.0f}" if hours >= 100 else f"{hours:.1f}" if hours >= 1 else f"{hours:.3f}"
