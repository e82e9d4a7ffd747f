"""Recoveries: how many faults hit gangs, how long a restart takes and in which phase, and what it costs."""

from __future__ import annotations

from tests.grafana.dashboards.model import Column, Dashboard, Marker, Row
from tests.grafana.dashboards.panels import BAD_FROM_ONE, NEUTRAL, bars, lines, ranking, stat, table, timeline
from tests.grafana.dashboards.promql import counted, ettr, events, lost_gpu_hours, mean, quantile

JOB_LINK = (
    "/d/healthd-job?var-datasource=${datasource}"
    "&var-namespace=${__data.fields.Namespace}&var-gang=${__data.fields.Gang}"
)
_RUNNING = "healthd_recovery_running_seconds"
_PHASE = "healthd_recovery_phase_seconds"
_GANG = "{{namespace}}/{{gang}}"


def _of_the_last_hour(histogram: str) -> str:
    return f"sum(increase({histogram}_sum[1h])) / (sum(increase({histogram}_count[1h])) > 0)"


SUMMARY = Row(
    title="Summary of the shown time",
    panels=[
        stat(
            "Under way now",
            "Recoveries that have not ended, those on hold included. A number that stays for long is a gang on hold.",
            "max(healthd_recovery_in_progress)",
            thresholds=NEUTRAL,
        ),
        stat(
            "On hold now",
            "Recoveries that wait for a spare, the budget, a proof, a checkpoint or the breaker. Somebody has to bring "
            "what they wait for: the timeline below names it.",
            "sum(max by (reason) (healthd_recoveries_held))",
            thresholds=BAD_FROM_ONE,
            runbooks=["HealthdGangHeld"],
        ),
        stat(
            "Recovered",
            "Recoveries that ended with a new checkpoint beyond the one that was loaded.",
            counted('healthd_recoveries_total{outcome="Recovered"}'),
            thresholds=NEUTRAL,
            decimals=0,
        ),
        stat(
            "Given up",
            "Gangs that healthd stopped for good: restarts brought no new step, or the job had failed. A person must "
            "correct the job and start it again.",
            counted('healthd_recoveries_total{outcome="GaveUp"}'),
            thresholds=BAD_FROM_ONE,
            decimals=0,
            runbooks=["HealthdGangGaveUp"],
        ),
        stat(
            "Mean time to running",
            "MTTR: from the fault until every member ran again, mean of the shown time. The phases below say where it "
            "goes.",
            mean(_RUNNING),
            unit="s",
            decimals=0,
            thresholds=((None, "green"), (300, "orange"), (900, "red")),
            when_empty="no recovery in this time",
        ),
        stat(
            "Time to running, p90",
            "Nine of ten recoveries were at least this quick. Far above the mean: a few gangs were on hold.",
            quantile(0.9, _RUNNING),
            unit="s",
            decimals=0,
            thresholds=((None, "green"), (600, "orange"), (1800, "red")),
            when_empty="no recovery in this time",
        ),
    ],
)

TIMELINE = Row(
    title="Timeline",
    panels=[
        bars(
            "Recoveries that ended",
            "By cause and outcome. Many of cause software: the jobs, not the machines. Superseded: the user stopped "
            "the gang, or it ended.",
            (events("healthd_recoveries_total", "cause, outcome"), "{{cause}}: {{outcome}}"),
            runbooks=["HealthdRestartsWithoutProgress"],
        ),
        lines(
            "Attempts",
            "Each step up is one restart of the gang. Two steps without a new training step between them: the job "
            "fails by itself.",
            ("max by (namespace, gang) (healthd_gang_attempt)", "{{namespace}}/{{gang}}"),
            stairs=True,
            runbooks=["HealthdRestartsWithoutProgress"],
        ),
        timeline(
            "Gangs on hold, and what they wait for",
            "A band while a recovery waits. budget: repair nodes. breaker: many faults at once. fence: prove that the "
            "old pods ended. checkpoint: none loads. spare: none is free. Ask why: healthd explain GANG.",
            (
                "max by (namespace, gang, reason) (healthd_gang_held_since_timestamp_seconds) > bool 0",
                "{{namespace}}/{{gang}}: {{reason}}",
            ),
            height=6,
            names={1: ("on hold", "red")},
            runbooks=["HealthdGangHeld"],
            when_empty="no gang was on hold",
        ),
        lines(
            "Time in the present phase",
            "How long each recovery that is not on hold is in its phase. Each falls back within minutes, in Confirming "
            "when the gang has saved. A line that climbs on: healthd tries the same step again and again.",
            (
                "time() - max by (namespace, gang, phase) (healthd_gang_recovery_since_timestamp_seconds)",
                "{{namespace}}/{{gang}}: {{phase}}",
            ),
            width=24,
            unit="s",
            runbooks=["HealthdRecoveryStuck"],
            when_empty="no gang was being recovered",
        ),
    ],
)

PHASES = Row(
    title="Where the time goes",
    panels=[
        ranking(
            "Mean time in each phase",
            "Detected: the fault window and the breaker. Stopping and Fencing: old pods end. Choosing: a checkpoint is "
            "verified. Reserving: a spare is claimed. Starting: all members run. Confirming: the first new checkpoint. "
            "Held: waiting for a person or a part.",
            (f"{mean(_PHASE, 'phase')} > 0", "{{phase}}"),
            unit="s",
            thresholds=NEUTRAL,
            when_empty="no recovery in this time",
        ),
        ranking(
            "Slowest time in each phase, p95",
            "A phase whose p95 is far above its mean is slow for some gangs only: look at those.",
            (f"{quantile(0.95, _PHASE, 'phase')} > 0", "{{phase}}"),
            unit="s",
            thresholds=NEUTRAL,
            when_empty="no recovery in this time",
        ),
        lines(
            "Time to running, and to confirmed progress",
            "Over the last hour. Running: every member runs. Confirmed: a checkpoint beyond the loaded one; it takes "
            "at least as long as the gang takes to save.",
            (_of_the_last_hour(_RUNNING), "until running"),
            (_of_the_last_hour("healthd_recovery_confirmed_seconds"), "until confirmed"),
            unit="s",
        ),
        lines(
            "Recoveries under way",
            "Many at once: a common cause, or the breaker holds them.",
            ("max(healthd_recovery_in_progress)", "under way"),
            ("sum(max by (reason) (healthd_recoveries_held))", "of them on hold"),
            stairs=True,
            decimals=0,
            runbooks=["HealthdBreakerOpen"],
        ),
    ],
)

COST = Row(
    title="What a fault costs",
    panels=[
        lines(
            "Work at risk",
            "How much work a fault would cost each gang now: the time since the newest checkpoint that would load. A "
            "line that climbs without falling back: the gang does not save, or what it saves is bad.",
            ("max by (namespace, gang) (healthd_checkpoint_lost_work_seconds)", "{{namespace}}/{{gang}}"),
            unit="s",
            runbooks=["HealthdCheckpointLate", "HealthdNothingToResumeFrom"],
        ),
        table(
            "Checkpoints that need attention",
            "What is wrong with the saving of a gang. late: no good one for long. refused: the newest would not load. "
            "slower: writing takes twice as long. full: room for only a few more.",
            [
                Column(source="namespace", title="Namespace"),
                Column(source="gang", title="Gang", link=JOB_LINK),
                Column(source="concern", title="Concern"),
            ],
            "max by (namespace, gang, concern) (healthd_checkpoint_concern) == 1",
            runbooks=["HealthdCheckpointRefused", "HealthdCheckpointFull", "HealthdCheckpointSlower"],
            when_empty="all gangs save as they should",
        ),
        stat(
            "Steps done again",
            "Training steps that had been done and were lost by recoveries in the shown time. Much: save more often.",
            counted("healthd_lost_steps_total"),
            height=8,
            thresholds=NEUTRAL,
            decimals=0,
        ),
        stat(
            "Checkpoints refused",
            "Checkpoints that a recovery found bad and did not load. Each one would have been a failed restart, or a "
            "silent loss. The Recovery object has each with its reason.",
            counted("healthd_checkpoint_rejected_total"),
            height=8,
            thresholds=((None, "green"), (1, "orange")),
            decimals=0,
            runbooks=["HealthdCheckpointRefused"],
        ),
        stat(
            "Gangs that cannot be read",
            "Gangs that healthd does nothing to, because their annotations cannot be read: a fault ends them. Their "
            "teams must correct the annotation; an Event GangInvalid on the gang names it.",
            "max(healthd_gangs_invalid)",
            height=8,
            thresholds=((None, "green"), (1, "orange")),
            runbooks=["HealthdGangInvalid"],
        ),
        stat(
            "Kinds without rights",
            "Kinds of gangs that the cluster has and the controller lacks rights to: healthd does not guard them. "
            "Apply the component of the kind.",
            "count(max by (kind) (healthd_kind_forbidden)) or vector(0)",
            height=8,
            thresholds=((None, "green"), (1, "orange")),
            decimals=0,
            runbooks=["HealthdKindForbidden"],
        ),
        lines(
            "Progress",
            "The furthest step of each gang. A flat line while the gang runs is a hang.",
            ("max by (namespace, gang) (healthd_gang_step)", "{{namespace}}/{{gang}}"),
        ),
    ],
)

GPU_TIME = Row(
    title="Lost GPU time",
    panels=[
        ranking(
            "GPU-hours lost by cause",
            "What faults and starts cost in the shown time, by what they were due to. For hardware: the family of the "
            "rule. user: starts and stops by people. Mend what leads here first.",
            (f"{lost_gpu_hours('cause')} > 0", "{{cause}}"),
            width=8,
            thresholds=NEUTRAL,
            when_empty="nothing was lost in this time",
        ),
        ranking(
            "GPU-hours lost by phase",
            "What lost time was spent on. redone: save more often. detection: faults are seen late. no_spare: more "
            "spares. startup: images, compilation, loading. stopping: grace periods. choosing: a slow store.",
            (f"{lost_gpu_hours('phase')} > 0", "{{phase}}"),
            width=8,
            thresholds=NEUTRAL,
            when_empty="nothing was lost in this time",
        ),
        table(
            "Gangs with the lowest ETTR",
            "Of each gang since healthd knows it: the share of its time that was training, and the GPU time that "
            "faults and starts cost it, recoveries that run included. healthd explain GANG says what cost most.",
            [
                Column(source="namespace", title="Namespace"),
                Column(source="gang", title="Gang", link=JOB_LINK),
                Column(source="A", title="ETTR", unit="percentunit"),
                Column(source="B", title="GPU-hours lost"),
            ],
            "bottomk(20, max by (namespace, gang) (healthd_gang_effective_training_time_ratio))",
            "max by (namespace, gang) (healthd_gang_lost_gpu_seconds) / 3600 and on (namespace, gang) "
            "bottomk(20, max by (namespace, gang) (healthd_gang_effective_training_time_ratio))",
            width=8,
            when_empty="no gang is known for long enough",
        ),
        lines(
            "GPU-hours lost per hour, by cause",
            "Over the last hour. It is counted when a recovery has ended: one of hours is one step up at its end.",
            (f"{lost_gpu_hours('cause', '1h')} > 0", "{{cause}}"),
            stacked=True,
        ),
        lines(
            "ETTR",
            "All gangs: over the last hour. Each gang: since healthd knows it. A gang that falls while the others do "
            "not has a problem of its own.",
            (ettr("1h"), "all gangs, last hour"),
            ("bottomk(10, max by (namespace, gang) (healthd_gang_effective_training_time_ratio))", _GANG),
            unit="percentunit",
            maximum=1,
        ),
    ],
)

DASHBOARD = Dashboard(
    uid="healthd-recoveries",
    title="healthd / Recoveries",
    meaning="How many faults hit gangs, how long a restart takes and in which phase, and what it costs.",
    markers=[
        Marker(
            name="Restart",
            expr="changes(max by (namespace, gang) (healthd_gang_attempt)[2m:30s]) > 0",
            title="{{namespace}}/{{gang}} is started again",
        )
    ],
    rows=[SUMMARY, TIMELINE, PHASES, GPU_TIME, COST],
)
