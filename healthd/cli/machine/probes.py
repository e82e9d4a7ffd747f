"""The sources of readings of this machine, put together as the configuration says."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from string import Template

from healthd.agent.probing import Probe
from healthd.core.api import Device, Nic
from healthd.core.config import ProbesPolicy
from healthd.probes.host.disks import Disks, FileSystems
from healthd.probes.host.edac import Edac
from healthd.probes.host.machine import Host, KernelClock
from healthd.probes.host.services import Services
from healthd.probes.host.thermal import Thermal
from healthd.probes.host_root import HostRoot
from healthd.probes.nics.ethernet import Ethernet, EthernetCounters, EthernetStatistics
from healthd.probes.nics.infiniband import Infiniband
from healthd.probes.nics.rdma_counters import InfinibandCounters, VirtualFunctions
from healthd.probes.nvml.health import Nvml, NvmlPulse, never_paused
from healthd.probes.nvml.process import ChildProcess, Pace
from healthd.probes.pci.pcie import FunctionKind, PcieAdvice, PcieErrors, PcieLinks


def nvml_of(
    policy: ProbesPolicy,
    host: HostRoot,
    *,
    use_every: timedelta = timedelta(0),
    is_paused: Callable[[], bool] = never_paused,
) -> Nvml:
    """
    NVML of the machine at *host*. *use_every*: how often to read how much its GPUs are used; 0: never. *is_paused*:
    whether no GPU may be open now.
    """
    has_driver = (host.sys / "module" / "nvidia").exists
    return Nvml(ChildProcess(Pace(use=use_every)), expected=policy.gpus, has_driver=has_driver, is_paused=is_paused)


def probes_of(
    policy: ProbesPolicy,
    host: HostRoot,
    *,
    nvml: Nvml | None = None,
    gpus: Sequence[Device] = (),
    nics: Sequence[Nic] = (),
    addresses: Callable[[], Mapping[str, str]] = dict,
) -> Sequence[Probe]:
    """
    Every source that *policy* leaves on, of the machine at *host*. A machine that lacks a device has a source without
    readings.

    *nvml*: that of the same machine, where somebody else reads it, too. *gpus* and *nics* were there earlier in this
    boot: one that is not is lost. *addresses* answers those of the node's GPUs by their UUIDs, as an exporter may name
    them by these alone.
    """
    there = [(gpu.pci, FunctionKind.GPU) for gpu in gpus] + [
        (nic.pci, FunctionKind.RDMA) for nic in nics if not nic.parent
    ]
    sys = host.sys
    nvml = nvml or nvml_of(policy, host)
    probes: list[Probe] = [
        nvml,
        NvmlPulse(nvml),
        PcieLinks(sys, there),
        PcieErrors(sys),
        PcieAdvice(sys, Path("/sys/kernel")),  # a container sees it, but only parts of the host's /sys
        Infiniband(sys, expected=policy.ports),
        InfinibandCounters(sys, expected_rate=policy.port_rate_gbps),
        VirtualFunctions(sys),
        Ethernet(sys),
        EthernetCounters(sys),
        EthernetStatistics(sys),
        Host(host.proc),
        KernelClock(),
        Disks(sys),
        FileSystems([Path(path) for path in policy.file_systems], host.proc),
        Edac(sys),
        Thermal(sys),
        Services(sys, run=host.run, proc=host.host_proc),
    ]
    if policy.dcgm_url:
        from healthd.probes.dcgm.exporter import Dcgm  # imported here: most nodes do not have it

        url = Template(policy.dcgm_url).safe_substitute(os.environ)
        probes.append(Dcgm(url, node=os.environ.get("NODE_NAME", ""), gpus=addresses))
    return [probe for probe in probes if probe.source not in policy.off]
