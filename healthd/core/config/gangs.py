"""When and how gangs are started again."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Annotated

from msgspec import Meta

from healthd.core.config.base import Policy, span


class StartFresh(StrEnum):
    """When a gang may start from nothing because no checkpoint can be loaded."""

    NEVER = "never"
    NEVER_SAVED = "never_saved"
    ALWAYS = "always"


class RecoveryPolicy(Policy, frozen=True, kw_only=True):
    """How a stopped gang is brought back, and when healthd stops trying."""

    max_no_advance: Annotated[
        int,
        Meta(
            description="Give up on a gang after so many restarts in a row that brought no step beyond the last one. "
            "Progress sets the count back to 0, so a long job may be restarted any number of times. A "
            "`healthd run` that a person starts again after healthd itself was killed does not count. Nor does a "
            "restart that failed while some of the members were not made two minutes after it, as by a quota. The "
            "annotation `healthd.dev/max-no-advance` on a gang overrides it.",
            ge=1,
        ),
    ] = 3
    backoff_max: Annotated[
        timedelta,
        span(
            "The longest wait before a restart that follows one without progress. The wait begins with ten seconds, "
            "and is doubled for each further one. The first restart after progress does not wait.",
        ),
    ] = timedelta(minutes=5)
    fault_window: Annotated[
        timedelta,
        span(
            "How long the failure of a rank waits for evidence of broken hardware before it counts as a fault of the "
            "software. The kernel log usually leads by milliseconds; two seconds cover a busy machine. Longer delays "
            "every restart after a software fault, shorter may put a gang back on a bad node. In `healthd run` the "
            "window ends early when the rank was ended from outside (by SIGKILL, SIGTERM, SIGINT or SIGHUP) and the "
            "kernel log was read past its end, or when no kernel log can be read. Evidence that comes later still "
            "moves the gang, by one more restart."
        ),
    ] = timedelta(seconds=2)
    grace: Annotated[
        timedelta,
        span(
            "How long the ranks of a stopped gang have between SIGTERM and SIGKILL. 30 s is what Kubernetes gives. "
            "Make it longer only if the job saves a checkpoint on SIGTERM: ranks that wait for a dead peer use it up "
            "to the end."
        ),
    ] = timedelta(seconds=30)
    start_deadline: Annotated[
        timedelta,
        span(
            "A restarted gang must have all its ranks running within this time, else the restart counts as one "
            "without progress. It does not count where some of them were not made. Half an hour allows for pulling a "
            "large image on a fresh node.",
            at_least=timedelta(seconds=1),
        ),
    ] = timedelta(minutes=30)
    confirm_after: Annotated[
        timedelta,
        span(
            "Where healthd cannot see the steps of a gang: so much time with all ranks running counts as recovered. "
            "Where the gang has not yet shown how often it saves, a sign of life after this time does; else a new step "
            "alone.",
            at_least=timedelta(seconds=1),
        ),
    ] = timedelta(minutes=10)
    fence_timeout: Annotated[
        timedelta | None,
        span(
            "After this time without proof that the old ranks are gone, start anyway. `null`, the default, holds the "
            "gang and pages a person instead: a rank that still runs on an unreachable node may overwrite the "
            "checkpoints of the new one. Set it only where storage itself keeps old writers out.",
            at_least=timedelta(minutes=1),
        ),
    ] = None
    start_fresh: Annotated[
        StartFresh,
        Meta(
            description="When a gang may start from step 0. `never_saved`: only while no checkpoint of it was ever "
            "seen, so saved work is never silently lost. `always`: also when every checkpoint is damaged; one that "
            "cannot be read may be good, and is waited for. `never`: hold and say so.",
        ),
    ] = StartFresh.NEVER_SAVED
    look_every: Annotated[
        timedelta,
        span(
            "How often the checkpoints of a running gang are looked at for a new step, and everything else is read "
            "again even if nothing seems to have changed. Faults do not wait for it.",
            at_least=timedelta(milliseconds=50),
        ),
    ] = timedelta(seconds=10)
    grow_after: Annotated[
        timedelta,
        span(
            "A gang that healthd made smaller, and that has the annotation `healthd.dev/grow-back`, grows back "
            "when nodes for its missing members have been good and free for so long: a node that comes and goes is no "
            "gain."
        ),
    ] = timedelta(minutes=5)
    grow_every: Annotated[
        timedelta,
        span(
            "The least time between the last recovery of a gang and a planned restart: one by which it grows back, or "
            "leaves a node before its maintenance or because of a slow rank. Each such restart stops a gang that runs, "
            "for some minutes.",
            at_least=timedelta(minutes=1),
        ),
    ] = timedelta(minutes=30)
    swap_every: Annotated[
        timedelta,
        span(
            "The least time between two restarts by which a gang leaves the node of a slow rank (`hang.stragglers`). "
            "Each stops a gang that runs, for what is only a hint: more of them would cost more than they win.",
            at_least=timedelta(minutes=1),
        ),
    ] = timedelta(days=1)
    spare_like: Annotated[
        tuple[str, ...],
        Meta(
            description="Node labels that say which hardware a node has. A spare must have the same value as the node "
            "that it replaces in the first of these that this one carries, and at least as many GPUs and other "
            "extended resources: a gang runs as fast as its slowest member, if it runs at all."
        ),
    ] = ("nvidia.com/gpu.product", "node.kubernetes.io/instance-type")
    spare_near: Annotated[
        tuple[str, ...],
        Meta(
            description="Node labels that say where a node is, the closest first. Among the spares that fit, one is "
            "preferred that has the same values as the node that it replaces."
        ),
    ] = ("topology.kubernetes.io/rack", "topology.kubernetes.io/zone")
    keep: Annotated[
        int,
        Meta(
            description="So many recoveries that have ended are kept of each gang, the newest, for people to read; "
            "older ones are deleted. Those of a gang that is gone are kept, too, until `keep_for` has passed. At least "
            "two: a restart is judged by the one before it.",
            ge=2,
        ),
    ] = 10
    keep_for: Annotated[
        timedelta,
        span(
            "How long the recoveries of a gang that is gone are kept. Names of jobs are rarely used twice, so without "
            "a limit they would pile up for ever.",
            at_least=timedelta(minutes=1),
        ),
    ] = timedelta(days=30)


class SilenceMode(StrEnum):
    """What to do when all members of a gang have fallen silent."""

    IGNORE = "ignore"
    TELL = "tell"
    RESTART = "restart"


class StragglerMode(StrEnum):
    """What to do about a rank that the others wait for."""

    IGNORE = "ignore"
    REPORT = "report"
    SWAP = "swap"


class HangPolicy(Policy, frozen=True, kw_only=True):
    """When silence means that a gang hangs. Judged by the gang's own rhythm, never by a fixed time alone."""

    enabled: Annotated[
        bool,
        Meta(description="Whether a gang that hangs is restarted. With `false` a hang is not looked for."),
    ] = True
    factor: Annotated[
        float,
        Meta(
            description="A gang hangs when it made no progress for this many times the longest interval seen between "
            "two of its steps. Five allows for a slow checkpoint or an evaluation between steps. Three "
            "intervals must have been seen: the first steps compile and warm up.",
            ge=1.5,
        ),
    ] = 5.0
    floor: Annotated[
        timedelta,
        span(
            "No gang is restarted for a shorter silence, whatever its rhythm, unless a rank is stopped. "
            "Ten minutes is PyTorch's own NCCL time-out: below it the job may still end or go on by itself.",
            at_least=timedelta(seconds=1),
        ),
    ] = timedelta(minutes=10)
    first_step: Annotated[
        timedelta,
        span(
            "Silence allowed before an attempt's first new step, where that is more: loading a checkpoint, joining "
            "the others and compiling are not the gang's rhythm. While its rhythm is not known yet, a gang hangs when "
            "for so long no rank printed anything or used a processor, as in an `init_process_group` that never "
            "returns; at least `floor`. Only `healthd run` sees that; on Kubernetes it is not detected. Also allowed "
            "later, while a rank is seen to work as usual, as in a first long evaluation. And for so long output "
            "counts as a sign of life in `healthd run` while all ranks hang and do next to nothing else; for four "
            "times as long before the first save after a restart. So make it longer than an evaluation that prints its "
            "progress and in which every rank only waits, as for a GPU of which NVML says nothing."
        ),
    ] = timedelta(minutes=30)
    silence: Annotated[
        SilenceMode,
        Meta(
            description="What to do when every rank has stopped doing what it did each second before, for five of its "
            "periods and 10 s at least (docs/hangs). `tell`: `healthd run` prints a warning and notifies; on "
            "Kubernetes there are an Event, an alert and a metric. `restart`: the gang is also restarted, once it has "
            "saved often enough to know its pauses: at once where a rank is stopped, else after `floor` and enough "
            "work before it, for late data and a long evaluation look the same. `ignore`: silence is not "
            "looked at. The annotation `healthd.dev/hang` on a gang overrides it. The default only tells, because a "
            "false restart costs more than a late one. The clock of checkpoints (`factor`, `floor`) goes on in any "
            "case."
        ),
    ] = SilenceMode.TELL
    stragglers: Annotated[
        StragglerMode,
        Meta(
            description="What is done when one rank has been slower than its peers by a tenth or more for about two "
            "minutes (docs/hangs). `report`: `healthd run` prints a warning and notifies; on Kubernetes there are "
            "an Event, a notice and a metric. `swap`: on Kubernetes a gang that such a rank has made slower by a tenth "
            "for ten minutes is also moved to a spare, right after a save, once for each rank; `healthd run` only "
            "reports. `ignore`: ranks are not compared, and agents do not publish the work of pods. The annotation "
            "`healthd.dev/slow-rank` on a gang overrides `report` and `swap`. The default restarts nothing, because a "
            "rank may be slow because of its own work, which it takes along. Ranks are compared by the samples that "
            "`silence` needs, so with `silence: ignore` they are not compared."
        ),
    ] = StragglerMode.REPORT
