"""
What a kind of custom object is, so that healthd can stop and start gangs of it: data, and no code.

The kinds that healthd ships (`healthd.gangs.kinds`) are described by the same structs as those that an operator adds
under `gangs.kinds`. A path is words with dots between, from the top of the object: `spec.runPolicy.suspend`; `*` stands
for every entry of a map or a list. A sign is `Suspended`, the type of a condition that is True, or a path with its
value: `status.phase=Suspended`; `a|b` are alternatives, `!=` is the opposite, and what is missing is empty, 0 or false.
`stopped` may join signs with ` and ` and ` or `.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from healthd.core.config.base import Policy

VERBS = ("get", "list", "watch", "patch")
"""What the controller does with the objects of a kind. Without one of these a recovery would begin, and not end."""
STATUS_VERB = "patch/status"
"""One more, of a kind with `pod_version`: a verb and a subresource."""


class ElasticDescription(Policy, frozen=True, kw_only=True):
    """Which parts of a gang may have fewer pods where there is no spare (`healthd.dev/min-nodes`), and more again."""

    names: Annotated[
        tuple[str, ...], Meta(description="The names of such parts, such as `Worker`. Empty: each of them.")
    ] = ()
    least: Annotated[
        str,
        Meta(
            description="The path to the fewest pods that its owner allows: below the part, or from the top where it "
            "begins with `spec.`."
        ),
    ] = ""
    most: Annotated[str, Meta(description="Likewise, to the most.")] = ""
    unless: Annotated[
        tuple[str, ...], Meta(description="Signs, any of which says that something else changes the number.")
    ] = ()


class PodsDescription(Policy, frozen=True, kw_only=True):
    """Where an object says which pods it makes: one part of the gang, or several parts alike."""

    at: Annotated[
        str, Meta(description="The path to what describes them, such as `spec.replicaSpecs.*`: each match is one part.")
    ] = ""
    name: Annotated[
        str,
        Meta(description="The path below it to the part's name. Empty: the key or the position that `*` stood for."),
    ] = ""
    count: Annotated[
        tuple[str, ...],
        Meta(description="Paths below it to numbers; their product is how many pods. One that is missing counts as 1."),
    ] = ("replicas",)
    template: Annotated[
        tuple[str, ...],
        Meta(
            description="Paths below it to the pod templates. Empty: healthd cannot change them while the gang is "
            "stopped, so the hint reaches the pods by admission alone, where they carry the label `healthd.dev/gang`."
        ),
    ] = ("template",)
    numbered: Annotated[bool, Meta(description="Whether its pods carry `index_labels`; a launcher does not.")] = True
    elastic: Annotated[
        ElasticDescription | None,
        Meta(
            description="Where healthd may write another number at the first path of `count`. A gang shrinks only "
            "where one of its parts alone is such, and the other numbers of `count` are 1."
        ),
    ] = None


class Trap(Policy, frozen=True, kw_only=True):
    """Something in an object that gets in the way of a recovery."""

    when: Annotated[str, Meta(description="The sign that it is there: `spec.shutdownAfterJobFinishes!=true`.")] = ""
    prevents: Annotated[
        bool,
        Meta(description="Whether healthd leaves such a gang alone and says why. Else `healthd doctor` only warns."),
    ] = False
    why: Annotated[str, Meta(description="What happens on the day: half a sentence without a full stop.")] = ""
    remedy: Annotated[str, Meta(description="What its owner should write instead.")] = ""


class KindDescription(Policy, frozen=True, kw_only=True):
    """One kind of gang: where it is found, how it is stopped and started, which pods are its members, how it ends."""

    api_version: Annotated[str, Meta(description="Group and version, such as `example.com/v1`.")] = ""
    kind: Annotated[str, Meta(description="The kind, such as `TrainingRun`.")] = ""
    alias: Annotated[
        str,
        Meta(
            description="What recoveries, metrics and commands call it where another gang kind has the same `kind`, "
            "such as `VolcanoJob`. Empty: `kind`."
        ),
    ] = ""
    plural: Annotated[str, Meta(description="Its name in URLs, such as `trainingruns`.")] = ""
    suspend: Annotated[str, Meta(description="The path to the boolean that stops a gang when it is true.")] = ""
    replicas: Annotated[
        str,
        Meta(
            description="Instead of `suspend`: the path to the number that stops a gang when it is 0. With `*` in it: "
            "the numbers of all parts, which are 0 together."
        ),
    ] = ""
    minimums: Annotated[
        tuple[str, ...],
        Meta(
            description="Paths to further numbers that are 0 while it is stopped: how many members have to be there. "
            "One that is missing stays so."
        ),
    ] = ()
    pod_version: Annotated[
        str,
        Meta(
            description="The path in its status to a number that its pods carry, where its controller takes no notice "
            "of how pods of a lower number end. healthd raises it before it stops a gang, so that the stop counts as "
            "no failure. The controller needs the right to patch the status."
        ),
    ] = ""
    pods: Annotated[tuple[PodsDescription, ...], Meta(description="The parts of a gang.")] = ()
    below: Annotated[
        str,
        Meta(description="Instead of `pods`: `JobSet`, where it makes one of its own name and that makes the pods."),
    ] = ""
    owners: Annotated[
        tuple[str, ...],
        Meta(description="The kinds of the controllers that its pods name. Empty: its own; `*`: any."),
    ] = ()
    name_label: Annotated[
        str, Meta(description="The label of its pods with its name. Empty: their owner's name is its name.")
    ] = ""
    name_suffix: Annotated[
        str,
        Meta(description="A regular expression of what follows its name in that label, where something always does."),
    ] = ""
    bound_by_name: Annotated[
        bool,
        Meta(
            description="Whether a binding of the admission policy `healthd-gangs` selects its pods by `name_label`, "
            "as that of `deploy/components/volcano` does. Else pods whose template healthd cannot change need the "
            "label `healthd.dev/gang`."
        ),
    ] = False
    uid_label: Annotated[str, Meta(description="The label of its pods with its uid, where there is one.")] = ""
    part_label: Annotated[
        str, Meta(description="The label of a pod with the name of its part, in capitals or not, where parts are many.")
    ] = ""
    index_labels: Annotated[
        tuple[str, ...],
        Meta(
            description="The labels that number a pod within its part. With `replicas`, the first numbers the replica. "
            "Empty: members cannot be distinguished."
        ),
    ] = ()
    stopped: Annotated[
        str,
        Meta(
            description="The sign that its controller has stopped it. It goes when the controller has seen the start."
        ),
    ] = ""
    suspended: Annotated[
        tuple[str, ...],
        Meta(description="Signs, any of which says that its user stopped it in another way, such as by a command."),
    ] = ()
    succeeded: Annotated[tuple[str, ...], Meta(description="Signs, any of which says that it is complete.")] = ()
    failed: Annotated[tuple[str, ...], Meta(description="Signs, any of which says that it failed for good.")] = ()
    started: Annotated[
        str,
        Meta(
            description="The path to the time of its last start, or the type of a condition: the time when it last "
            "became False. Empty: not known."
        ),
    ] = ""
    kept_job: Annotated[
        str,
        Meta(
            description="The name of a Job that it makes once and keeps while it is stopped; `{name}` is its own. "
            "healthd puts the hint on that Job's template, too."
        ),
    ] = ""
    leaves_ended_pods: Annotated[
        bool,
        Meta(
            description="Whether pods that ended stay when it is stopped, and are never replaced: healthd deletes them."
        ),
    ] = False
    counts_ended_pods: Annotated[
        bool,
        Meta(
            description="Whether its controller takes pods that ended before the start, and are not removed yet, for "
            "failed ones, and the whole for failed: healthd starts it when they are gone."
        ),
    ] = False
    noticed_stop: Annotated[
        str,
        Meta(
            description="The sign that its controller has noticed a stop, where it acts on a stop or a start that it "
            "noticed only at the next change of the object, or seconds later. healthd then makes one such change: of "
            "its own annotation, once for each stop and start of its own. Empty: the controller acts at once."
        ),
    ] = ""
    traps: Annotated[tuple[Trap, ...], Meta(description="What gets in the way of a recovery.")] = ()

    @property
    def name(self) -> str:
        """What recoveries, metrics and commands call it."""
        return self.alias or self.kind

    @property
    def verbs(self) -> tuple[str, ...]:
        """What the controller does with its objects."""
        return (*VERBS, STATUS_VERB) if self.pod_version else VERBS


class GangsPolicy(Policy, frozen=True, kw_only=True):
    """Which kinds of custom objects are gangs, beside Job, JobSet, StatefulSet and plain pods."""

    kinds: Annotated[
        tuple[KindDescription, ...],
        Meta(
            description="Kinds of your own: [gangs.md](gangs.md) has an example, and what healthd does with each key."
        ),
    ] = ()
    off: Annotated[
        tuple[str, ...],
        Meta(description="Kinds of custom objects that healthd knows and shall not look at, such as `RayCluster`."),
    ] = ()
