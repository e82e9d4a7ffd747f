"""
The process of an agent: what it reads of this machine, and its signals.

Imported only when an agent really starts, after `healthd.cli.commands.agent` has kept out what it does not need.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import threading
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path

import structlog

from healthd.agent.daemon import AgentDaemon, NodeSources
from healthd.agent.pod_witness import AskRankTimes, ask_processes
from healthd.agent.probing import Probe
from healthd.cli.machine.probes import nvml_of, probes_of
from healthd.clock import Clock
from healthd.cluster.remote import ClientLimits, Connection, connect
from healthd.core.api import Device, KernelLogCursor, Nic
from healthd.core.config import Config
from healthd.core.diagnosis.site_rules import beginnings
from healthd.core.hang.gpus import GpuUses
from healthd.core.hang.pods import SAMPLE_EVERY
from healthd.probes.host_root import HostRoot
from healthd.probes.klog.kmsg import read_boot_id
from healthd.probes.klog.log import KernelLog
from healthd.probes.klog.source_selection import open_kernel_log
from healthd.probes.nics.rdma import read_nics
from healthd.probes.nvml.inventory import NvmlInventory, inventory
from healthd.probes.pod_processes import PodProcesses
from healthd.probes.usage.pods import PodUsages

log = structlog.get_logger(__name__)

LIMITS = ClientLimits(watch_lasts=timedelta(minutes=30))
"""The longest time of one watch: an idle agent sends no other request than a new watch."""


async def guard(node: str, config: Config, connection: Connection, clock: Clock) -> None:
    """Guard *node*, which is this machine, until SIGTERM or SIGINT. Raises Unusable, AddressError."""
    if config.kernel_log.trust_user_space:
        log.warning("kernel_log.trusts_user_space", note="any process that may write to the log can cordon this node")
    async with connect(connection, clock=clock, jitter=random.random, limits=LIMITS) as cluster:
        daemon = AgentDaemon(node, config, this_node(config, clock), cluster, clock, jitter=random.random)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, daemon.stop)
        log.info("agent.starts", node=node)
        await daemon.run()


def this_node(config: Config, clock: Clock) -> NodeSources:
    """The sources of this machine."""
    boot_id = read_boot_id()
    host = HostRoot(Path(config.host_root))

    def open_log(cursor: KernelLogCursor) -> KernelLog:
        also = beginnings(config.judge.rules)
        return open_kernel_log(config.kernel_log, host, clock, boot_id=boot_id, cursor=cursor, also=also)

    addresses: dict[str, str] = {}

    def read_inventory() -> NvmlInventory:
        found = inventory()
        addresses.update({gpu.uuid: gpu.pci for gpu in found.devices})
        return found

    paused = threading.Event()
    use_every = SAMPLE_EVERY if config.probes.rhythms else timedelta(0)
    nvml = nvml_of(config.probes, host, use_every=use_every, is_paused=paused.is_set)

    def make_probes(gpus: Sequence[Device], nics: Sequence[Nic]) -> Sequence[Probe]:
        return probes_of(config.probes, host, nvml=nvml, gpus=gpus, nics=nics, addresses=lambda: addresses)

    def pause_gpus(on: bool) -> None:
        (paused.set if on else paused.clear)()

    pods = PodProcesses(host.cgroups, own_uid=os.environ.get("POD_UID", ""))
    return NodeSources(
        boot_id=boot_id,
        open_kernel_log=open_log,
        read_inventory=read_inventory,
        read_nics=partial(read_nics, host.sys),
        read_pods=pods.read,
        pod_usages=PodUsages(lambda: pods.groups) if config.probes.rhythms else None,
        ask_processes=ask_processes,
        ask_rank_times=AskRankTimes(),
        read_gpus=nvml.use if "nvml" not in config.probes.off else GpuUses,
        make_probes=make_probes,
        pause_gpus=pause_gpus,
    )
