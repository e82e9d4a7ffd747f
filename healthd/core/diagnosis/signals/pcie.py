"""Rules about PCI Express: lost devices, narrow and slow links, AER counters, and settings that hurt GPUDirect."""

from __future__ import annotations

from datetime import timedelta

from healthd.core.api.model import Blame
from healthd.core.diagnosis.signals.before import fewer_than_before
from healthd.core.diagnosis.signals.gpus.flapping import comes_and_goes
from healthd.core.diagnosis.signals.rule import Below, FellBelowBest, Grows, Is, IsNot, Rule

_SPEC = "PCI Express Base Specification, link status register; Linux drivers/pci/pci-sysfs.c"
_AER = "Linux Documentation/PCI/pcieaer-howto.rst"
_DIRECT = "NVIDIA GPUDirect Storage and NCCL troubleshooting guides, sections on IOMMU and ACS"
_A_MINUTE = timedelta(minutes=1)
_LOST = frozenset({"gone", "silent"})
_LINKED = {"gpu": "GPU", "rdma": "network device", "nvme": "disk", "uplink": "PCIe switch"}
_RESEAT = "Look at seat, riser and cable of the device, then reboot; the link is trained at boot."


def _narrow(kind: str) -> Rule:
    """The link was wide and no longer is, so the design of the board is not the reason."""
    return Rule(
        name=f"pcie-{kind}-width-fell",
        reads=f"pcie.{kind}_width",
        test=FellBelowBest(),
        tier="serious",
        blame=Blame.LINK,
        summary=f"the PCIe link of the {_LINKED[kind]} lost lanes",
        advice=_RESEAT,
        holds=_A_MINUTE,
        same_as="pcie-width",
        source=f"{_SPEC}; lanes are lost by errors only, never to save power",
    )


def _narrow_at_boot(kind: str) -> Rule:
    """Boards may wire fewer lanes than both ends offer, so a person decides."""
    return Rule(
        name=f"pcie-{kind}-width",
        reads=f"pcie.{kind}_width",
        test=Below(other=f"pcie.{kind}_full_width"),
        tier="ticket",
        blame=Blame.LINK,
        summary=f"the PCIe link of the {_LINKED[kind]} has fewer lanes than both its ends offer",
        advice=f"{_RESEAT} Where the board is built like this, name the rule in judge.off.",
        holds=_A_MINUTE,
        same_as="pcie-width",
        source=_SPEC,
    )


def _slow(kind: str) -> Rule:
    """Not for GPUs, which slow their links down when they idle."""
    return Rule(
        name=f"pcie-{kind}-speed-fell",
        reads=f"pcie.{kind}_speed",
        test=FellBelowBest(),
        tier="suspect",
        blame=Blame.LINK,
        summary=f"the PCIe link of the {_LINKED[kind]} became slower",
        advice=_RESEAT,
        holds=5 * _A_MINUTE,
        same_as="pcie-speed",
        source=_SPEC,
    )


def _slow_at_boot(kind: str) -> Rule:
    return Rule(
        name=f"pcie-{kind}-speed",
        reads=f"pcie.{kind}_speed",
        test=Below(other=f"pcie.{kind}_full_speed"),
        tier="ticket",
        blame=Blame.LINK,
        summary=f"the PCIe link of the {_LINKED[kind]} is slower than both its ends can",
        advice=f"{_RESEAT} Where the firmware is set like this, name the rule in judge.off.",
        holds=5 * _A_MINUTE,
        same_as="pcie-speed",
        source=_SPEC,
    )


_LOSSES = (
    Rule(
        name="pcie-gpu-lost",
        reads="pcie.gpu_state",
        test=Is(_LOST),
        tier="reboot",
        blame=Blame.DEVICE,
        summary="the GPU is gone from the PCIe bus or no longer answers there",
        # A reset of all GPUs of a node makes them silent for some seconds.
        holds=_A_MINUTE,
        same_as="gpu-lost",
        source="Linux drivers/pci: a device that is gone reads as all ones; NVIDIA Xid catalog, 79",
    ),
    Rule(
        name="pcie-switch-lost",
        reads="pcie.switch_state",
        test=Is(_LOST),
        tier="serious",
        blame=Blame.DEVICE,
        summary="the NVSwitch is gone from the PCIe bus or no longer answers there",
        holds=_A_MINUTE,
        source="Linux drivers/pci: a device that is gone reads as all ones",
    ),
    Rule(
        name="pcie-rdma-lost",
        reads="pcie.rdma_state",
        test=Is(_LOST),
        tier="serious",
        blame=Blame.DEVICE,
        summary="the network device is gone from the PCIe bus or no longer answers there",
        advice="Look at its seat and power; a reboot may bring it back.",
        # A reset of its firmware takes it off the bus for some seconds.
        holds=2 * _A_MINUTE,
        same_as="nic-lost",
        source="Linux drivers/pci: a device that is gone reads as all ones; NVSentinel counts a lost NIC as fatal",
    ),
    Rule(
        name="pcie-nvme-lost",
        reads="pcie.nvme_state",
        test=Is(_LOST),
        tier="suspect",
        blame=Blame.DEVICE,
        summary="the disk is gone from the PCIe bus or no longer answers there",
        advice="Replace the disk unless somebody pulled or detached it.",
        holds=_A_MINUTE,
        same_as="disk-lost",
        source="Linux drivers/pci: a device that is gone reads as all ones",
    ),
    Rule(
        name="pcie-gpu-without-driver",
        reads="pcie.gpu_driver",
        test=Is(frozenset({"none"})),
        tier="ticket",
        blame=Blame.NODE,
        summary="no driver has taken the GPU",
        advice="Look at the driver's installation and at the kernel log for why it refused this GPU.",
        # Long enough for a driver that is compiled at boot.
        holds=timedelta(minutes=30),
        same_as="gpu-without-driver",
        source="Linux drivers/base: the link `driver` of a device; NVIDIA GPU Operator compiles drivers after boot",
    ),
)

_ERRORS = (
    Rule(
        name="pcie-aer-fatal",
        reads="pcie.aer_fatal",
        test=Grows(1, timedelta(hours=1)),
        tier="serious",
        blame=Blame.LINK,
        summary="a fatal PCIe error: the link had to be reset",
        advice="Look at seat, riser and cable at both ends of this link.",
        clears_after=timedelta(hours=24),
        same_as="pcie-error",
        source=_AER,
    ),
    Rule(
        name="pcie-aer-nonfatal",
        reads="pcie.aer_nonfatal",
        test=Grows(1, timedelta(hours=1)),
        tier="suspect",
        blame=Blame.LINK,
        summary="an uncorrected PCIe error: a transaction was lost",
        clears_after=timedelta(hours=6),
        same_as="pcie-errors",
        source=_AER,
    ),
    Rule(
        name="pcie-aer-correctable",
        reads="pcie.aer_correctable",
        test=Grows(300, timedelta(minutes=10)),
        tier="ticket",
        blame=Blame.LINK,
        summary="a PCIe link that corrects errors all the time, and is slower for it",
        advice="Look at seat, riser and cable at both ends of this link when the node is idle.",
        clears_after=timedelta(hours=1),
        same_as="pcie-errors",
        source="DCGM's health check warns at about 31 replays a minute on a x16 link of generation 5",
    ),
)

_SETTINGS = (
    Rule(
        name="pcie-iommu-translates",
        reads="pcie.iommu",
        test=IsNot(frozenset({"identity"})),
        tier="record",
        blame=Blame.NODE,
        summary="the IOMMU translates this device's addresses, which slows GPUDirect down on most machines",
        advice="On x86 machines that run no virtual machines boot with iommu=pt.",
        source=_DIRECT,
    ),
    Rule(
        name="pcie-acs-redirects",
        reads="pcie.acs_redirect",
        test=Is(frozenset({"on"})),
        tier="record",
        blame=Blame.NODE,
        summary="ACS sends traffic between devices below this port up to the processor",
        advice="Switch ACS off on the ports above GPUs and network devices where no virtual machines need it.",
        source=_DIRECT,
    ),
)

RULES: tuple[Rule, ...] = (
    *_LOSSES,
    comes_and_goes("pcie-gpu-flaps", "pcie.gpu_state"),
    fewer_than_before("pcie-fewer-gpus", "pcie.gpus", "fewer GPUs are on the PCI bus than there were"),
    *(_narrow(kind) for kind in _LINKED),
    *(_narrow_at_boot(kind) for kind in _LINKED if kind != "nvme"),
    *(_slow(kind) for kind in _LINKED if kind != "gpu"),
    *(_slow_at_boot(kind) for kind in ("rdma", "uplink")),
    *_ERRORS,
    *_SETTINGS,
)
"""A dual-ported disk has half its lanes at each port, so only what a disk had before counts."""
