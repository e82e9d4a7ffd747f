"""The AppWrapper of CodeFlare, which makes objects of any kind, and makes them anew at each start."""

from __future__ import annotations

from healthd.core.config.gang_kinds import KindDescription, PodsDescription, Trap

APPWRAPPER = KindDescription(
    api_version="workload.codeflare.dev/v1beta2",
    kind="AppWrapper",
    plural="appwrappers",
    suspend="spec.suspend",
    pods=(PodsDescription(at="status.componentStatus.*.podSets.*", template=()),),
    owners=("*",),
    name_label="workload.codeflare.dev/appwrapper",
    stopped="status.phase=Suspended or status.phase=Suspending and DeletingResources",
    succeeded=("status.phase=Succeeded",),
    failed=("status.phase=Failed",),
    traps=(
        Trap(
            when="spec.managedBy!=|workload.codeflare.dev/appwrapper",
            prevents=True,
            why="another controller than AppWrapper's own runs it, such as MultiKueue in another cluster",
            remedy="leave managedBy out",
        ),
    ),
)
"""
What it wraps cannot be changed, not even while it is stopped.

In the phase Suspending it makes nothing, whatever its spec says, until all that it made is gone; the condition
DeletingResources says that the deletions were sent. When the last pod is gone is seen by healthd itself: the controller
looks only every five seconds, and at each change of the AppWrapper, such as the start.
"""
