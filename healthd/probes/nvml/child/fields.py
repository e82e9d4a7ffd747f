"""
Which of NVML's field values are read, and the names of their readings. Data, for the child that calls NVML.

The numbers are `NVML_FI_DEV_…` of nvml.h. A field that a driver does not know, or that a GPU lacks, is left out.
Nothing but the standard library may be imported here: the child must stay small.
"""

from __future__ import annotations

VITAL = {
    4: "nvml.ecc.uncorrected",
    31: "nvml.retired.pending",
    82: "nvml.temperature.memory",
    144: "nvml.row_remap.pending",
    145: "nvml.row_remap.failure",
    230: "nvml.recovery_action",
    269: "nvml.throttled.sw-thermal",
    270: "nvml.throttled.hw-thermal",
    271: "nvml.throttled.power-brake",
    307: "nvml.bank_remap.pending",
}
"""Of the whole GPU, in every sample. Times of throttling are seconds."""

MORE = {
    1: "nvml.ecc.on",
    3: "nvml.ecc.corrected",
    5: "nvml.ecc.corrected.ever",
    6: "nvml.ecc.uncorrected.ever",
    11: "nvml.ecc.dram.corrected",
    12: "nvml.ecc.dram.uncorrected",
    22: "nvml.ecc.dram.corrected.ever",
    23: "nvml.ecc.dram.uncorrected.ever",
    29: "nvml.retired.corrected",
    30: "nvml.retired.uncorrected",
    38: "nvml.nvlink.crc_flit.all",
    45: "nvml.nvlink.crc_data.all",
    52: "nvml.nvlink.replay.all",
    59: "nvml.nvlink.recovery.all",
    75: "nvml.throttled.thermal",
    94: "nvml.pcie.replay",
    95: "nvml.pcie.replay_rollover",
    142: "nvml.row_remap.corrected",
    143: "nvml.row_remap.uncorrected",
    169: "nvml.pcie.recovery",
    173: "nvml.pcie.correctable",
    174: "nvml.pcie.naks_received",
    175: "nvml.pcie.receiver_error",
    176: "nvml.pcie.bad_tlp",
    177: "nvml.pcie.naks_sent",
    178: "nvml.pcie.bad_dllp",
    179: "nvml.pcie.non_fatal",
    180: "nvml.pcie.fatal",
    181: "nvml.pcie.unsupported_request",
    182: "nvml.pcie.lcrc",
    183: "nvml.pcie.lane_error",
    301: "nvml.row_remap.corrected.inactive",
    302: "nvml.row_remap.uncorrected.inactive",
    304: "nvml.bank_remap.inactive",
    306: "nvml.bank_remap.exhausted",
}
"""Of the whole GPU, now and then. `ecc` counts since the last reset of the GPU, `.ever` since it was made."""

LINK_STATE = 165
LINK_VITAL = {LINK_STATE: "nvml.nvlink.state"}
"""Of each NVLink, in every sample."""

LINK_MORE = {
    161: "nvml.nvlink.replay",
    162: "nvml.nvlink.recovery",
    163: "nvml.nvlink.crc",
    206: "nvml.nvlink.malformed",
    207: "nvml.nvlink.buffer_overrun",
    208: "nvml.nvlink.receive_error",
    209: "nvml.nvlink.receive_remote_error",
    210: "nvml.nvlink.receive_general_error",
    211: "nvml.nvlink.integrity_error",
    212: "nvml.nvlink.transmit_discard",
    213: "nvml.nvlink.recovered",
    214: "nvml.nvlink.recovery_failed",
    215: "nvml.nvlink.recovery_events",
    219: "nvml.nvlink.effective_errors",
    220: "nvml.nvlink.effective_ber",
    221: "nvml.nvlink.symbol_errors",
    222: "nvml.nvlink.symbol_ber",
}
"""Of each NVLink, now and then: up to 163 for the links of Hopper and before, the others for NVLink 5."""

LINK_COUNT = 91
NANOSECONDS = frozenset({75, 269, 270, 271})
"""Fields that become seconds."""
BIT_ERROR_RATES = frozenset({220, 222})
"""Fields that become a rate: NVML packs a mantissa (bits 8 to 11) and a negative exponent of ten (bits 0 to 7)."""

LINK_STATES = {0: "inactive", 1: "active", 2: "sleep", 3: "no-traffic"}

THROTTLE = {
    0x1: "idle",
    0x4: "power-cap",
    0x8: "hw-slowdown",
    0x20: "sw-thermal",
    0x40: "hw-thermal",
    0x80: "power-brake",
}
"""The bits of `nvmlClocksEventReason…` behind the readings `nvml.throttle.…`. The other bits are settings of people."""

LIMITS = {bit: why for bit, why in THROTTLE.items() if why != "idle"} | {0x2: "setting", 0x10: "sync-boost"}
"""The same bits, and those of settings, where the clocks of GPUs that work are compared."""

FABRIC_STATES = {0: "none", 1: "not-started", 2: "in-progress", 3: "completed"}
FABRIC_SUMMARY = {1: "healthy", 2: "unhealthy", 3: "limited-capacity"}
FABRIC_MASK = {
    "degraded_bandwidth": 0,
    "route_recovery": 2,
    "route_unhealthy": 4,
    "access_timeout_recovery": 6,
    "partition_assigned": 12,
    "manager_connected": 14,
}
"""Two bits each, by the first one: 0 is not reported, 1 is yes, 2 is no."""
FABRIC_CONFIGURATION_SHIFT = 8
FABRIC_CONFIGURATION = {
    1: "correct",
    2: "wrong-system-guid",
    3: "wrong-chassis-serial",
    4: "no-partition",
    5: "too-few-nvlinks",
    6: "incompatible-firmware",
    7: "invalid-location",
    8: "invalid-gpu-state",
}
"""Four bits; 0 is not reported."""
