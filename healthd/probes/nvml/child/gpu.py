"""
Reads one GPU through NVML, for the child that calls it: what it is, its state, and all its counters.

What a driver or GPU does not have is left out. Nothing is judged, and nothing but the standard library, the binding and
the table of fields may be imported here: the child must stay small.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pynvml

from healthd.probes.nvml.child import fields, symbols

Value = float | str

OK, LOST, RESET_REQUIRED, ERROR = "ok", "lost", "reset-required", "error"
NO_ANSWER = "mute"
"""It answers no call at all, for reasons that are no fault: no permission, or nothing is supported."""

_LOST = 15
_RESET_REQUIRED = 16
_CORRUPTED_INFOROM = 14
_TROUBLE = frozenset({1, 10, 11, 17, 999})
"""Uninitialized, time-out, interrupts, operating system, unknown: the call should have worked and did not."""
_FAILED = -1
"""Not a code of NVML: a call failed that must not fail."""
_NEVER = frozenset({2, 3, 4, 13, 26})
"""Codes of a field that is not there: it is left out of the next samples."""
_LEFT_OUT_FOR = 60
"""Samples with everything, one a minute, after which all fields are tried again: without MIG a GPU has more of them."""
_MOST_LINKS = int(pynvml.NVML_NVLINK_MAX_LINKS)
_KINDS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""Members of NVML's union of values, by the type that it names."""


class Utilisation(NamedTuple):
    """What a GPU does, by the driver's last sample of it (a sixth of a second to a second)."""

    kernels: float
    """The part of the time in which a kernel ran: also one that only waits for other GPUs."""
    memory: float
    """The part of the time in which its memory was read or written."""
    held: int
    """Bytes of its memory that are taken. 0: it does not say."""
    clock: int = 0
    """Of its multiprocessors, MHz. 0: it does not say."""
    highest: int = 0
    """The highest clock of its model, MHz. 0: it does not say."""
    limits: tuple[str, ...] = ()
    """What keeps its clock down, by the names of `fields.LIMITS`."""


class NvmlGpu:
    """One GPU for which NVML gave a handle. It stands for the same board until NVML is initialised anew."""

    def __init__(self, index: int) -> None:
        """Raises NVMLError when NVML does not report which GPU it is."""
        self._handle = symbols.handle(index)
        self.pci = short(symbols.bus_id(self._handle))
        self.key = address(self._handle)
        self.index = index
        self._codes: set[int] = set()
        self._error = ""
        self._refusal = ""
        self._batches: dict[bool, list[Any]] = {}
        self._tried = 0
        """Samples with everything since all fields were tried."""
        self._links: int | None = None
        self._identity: dict[str, Value] | None = None
        self._highest: int | None = None

    def sample(self, *, whole: bool) -> dict[str, Any]:
        """Its state and values. *whole*: also those that are read now and then. Raises no error of NVML."""
        self._codes, self._error, self._refusal = set(), "", ""
        if whole:
            self._try_again()
        values = self._vital()
        links = self._read_fields(values, whole=whole) if self._state() == OK else {}
        has_no_answer = not values and not links
        if whole and not has_no_answer:
            values |= self._more()
        state = self._state()
        if state == OK and has_no_answer:
            state, self._error = NO_ANSWER, self._refusal
        if state in {LOST, RESET_REQUIRED}:
            values, links = {}, {}
        return {"pci": self.pci, "state": state, "said": self._error, "values": values, "links": links}

    def utilisation(self) -> Utilisation | None:
        """What it does at this moment. None: it does not say, as while it is shared out by MIG."""
        busy = self._ask(pynvml.nvmlDeviceGetUtilizationRates)
        memory = self._ask(pynvml.nvmlDeviceGetMemoryInfo)
        if busy is None:
            return None
        held = memory.used if memory is not None else 0
        return Utilisation(busy.gpu / 100, busy.memory / 100, held, *self._clock())

    def _clock(self) -> tuple[int, int, tuple[str, ...]]:
        """That of now, the highest, and what keeps it down."""
        if self._highest is None:
            self._highest = self._ask(pynvml.nvmlDeviceGetMaxClockInfo, pynvml.NVML_CLOCK_SM) or 0
        now = self._ask(pynvml.nvmlDeviceGetClockInfo, pynvml.NVML_CLOCK_SM) or 0
        mask = self._reasons() or 0
        return now, self._highest, tuple(why for bit, why in fields.LIMITS.items() if mask & bit)

    def register(self, events: Any, kinds: int) -> bool:
        """Register this GPU for *events*. False: it has none."""
        supported = self._ask(pynvml.nvmlDeviceGetSupportedEventTypes) or 0
        if not supported & kinds:
            return False
        try:
            pynvml.nvmlDeviceRegisterEvents(self._handle, supported & kinds, events)
        except pynvml.NVMLError:
            return False
        return True

    def _vital(self) -> dict[str, Value]:
        values: dict[str, Value | None] = {
            "nvml.temperature": self._ask(pynvml.nvmlDeviceGetTemperature, pynvml.NVML_TEMPERATURE_GPU, must=True),
            "nvml.temperature.margin": self._ask(pynvml.nvmlDeviceGetMarginTemperature),
            "nvml.pcie.width": self._ask(pynvml.nvmlDeviceGetCurrPcieLinkWidth),
            "nvml.pcie.width.most": self._ask(pynvml.nvmlDeviceGetMaxPcieLinkWidth),
            "nvml.pcie.generation": self._ask(pynvml.nvmlDeviceGetCurrPcieLinkGeneration),
            "nvml.pcie.generation.most": self._ask(pynvml.nvmlDeviceGetMaxPcieLinkGeneration),
            "nvml.mig": self._mig(),
        }
        milliwatts = self._ask(pynvml.nvmlDeviceGetPowerUsage)
        values["nvml.power"] = None if milliwatts is None else milliwatts / 1000
        return _answered(values) | self._throttle()

    def _throttle(self) -> dict[str, Value]:
        mask = self._reasons()
        if mask is None:
            return {}
        return {f"nvml.throttle.{why}": "yes" if mask & bit else "no" for bit, why in fields.THROTTLE.items()}

    def _reasons(self) -> int | None:
        """The bits of `nvmlClocksEventReason…`: why its clock is not the highest."""
        mask: int | None = self._ask(pynvml.nvmlDeviceGetCurrentClocksEventReasons)
        if mask is None:  # drivers before 535 know only the older name
            mask = self._ask(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons)
        return mask

    def _more(self) -> dict[str, Value]:
        if self._identity is None:
            self._identity = self._who()
        values = _answered({"nvml.processes": self._ask(symbols.processes), "nvml.mig.instances": self._instances()})
        return self._identity | values | self._memory() | self._fabric()

    def _who(self) -> dict[str, Value]:
        """What does not change until NVML is initialised anew. Checking the InfoROM takes long: once is enough."""
        words = {
            "nvml.uuid": self._ask(pynvml.nvmlDeviceGetUUID),
            "nvml.serial": self._ask(pynvml.nvmlDeviceGetSerial),
            "nvml.product": self._ask(pynvml.nvmlDeviceGetName),
            "nvml.gsp.version": self._ask(pynvml.nvmlDeviceGetGspFirmwareVersion),
        }
        values = {name: symbols.text(word) for name, word in words.items() if word}
        mode = self._ask(pynvml.nvmlDeviceGetGspFirmwareMode)
        if mode is not None:
            values["nvml.gsp"] = "on" if mode[0] else "off"
        self._codes.discard(_CORRUPTED_INFOROM)
        valid = self._ask(_validated)
        corrupted = _CORRUPTED_INFOROM in self._codes
        if valid or corrupted:
            values["nvml.inforom"] = "corrupted" if corrupted else "valid"
        return {"nvml.index": self.index, **values}

    def _mig(self) -> str | None:
        """In every sample: NVLinks go down the moment that it is switched on."""
        mode = self._ask(pynvml.nvmlDeviceGetMigMode)
        return None if mode is None else "on" if mode[0] else "off"

    def _instances(self) -> int | None:
        if self._mig() != "on":
            return None
        most = self._ask(pynvml.nvmlDeviceGetMaxMigDeviceCount) or 0
        there = [self._ask(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, number) for number in range(most)]
        return sum(instance is not None for instance in there)

    def _memory(self) -> dict[str, Value]:
        values: dict[str, Value] = {}
        if (spare := self._ask(pynvml.nvmlDeviceGetRowRemapperHistogram)) is not None:
            for left in ("max", "high", "partial", "low", "none"):
                values[f"nvml.row_remap.banks.{left}"] = getattr(spare, left)
        if (repair := self._ask(pynvml.nvmlDeviceGetRepairStatus)) is not None:
            values["nvml.repair.channel_pending"], values["nvml.repair.tpc_pending"] = repair
        sram = pynvml.c_nvmlEccSramErrorStatus_v1_t()
        if self._ask(pynvml.nvmlDeviceGetSramEccErrorStatus, pynvml.byref(sram)) is not None:
            values["nvml.ecc.sram.corrected"] = sram.volatileCor
            values["nvml.ecc.sram.uncorrected"] = sram.volatileUncParity + sram.volatileUncSecDed
            values["nvml.ecc.sram.corrected.ever"] = sram.aggregateCor
            values["nvml.ecc.sram.uncorrected.ever"] = sram.aggregateUncParity + sram.aggregateUncSecDed
            values["nvml.ecc.sram.threshold"] = sram.bThresholdExceeded
        return values

    def _fabric(self) -> dict[str, Value]:
        info, newest = pynvml.c_nvmlGpuFabricInfo_v3_t(), True
        if self._ask(pynvml.nvmlDeviceGetGpuFabricInfoV, pynvml.byref(info)) is None:
            info, newest = pynvml.c_nvmlGpuFabricInfo_v2_t(), False
            if self._ask(pynvml.nvmlDeviceGetGpuFabricInfoV, pynvml.byref(info)) is None:
                return {}
        values: dict[str, Value] = {"nvml.fabric.state": fields.FABRIC_STATES.get(info.state, str(info.state))}
        if values["nvml.fabric.state"] == "none":
            return {}
        if info.state == pynvml.NVML_GPU_FABRIC_STATE_COMPLETED:
            values["nvml.fabric.status"] = info.status
        if newest and info.healthSummary in fields.FABRIC_SUMMARY:
            values["nvml.fabric.health"] = fields.FABRIC_SUMMARY[info.healthSummary]
        return values | _fabric_mask(info.healthMask)

    def _read_fields(self, values: dict[str, Value], *, whole: bool) -> dict[str, list[Value | None]]:
        """Add the fields of the whole GPU to *values*. Returns those of its links, by number of the link."""
        links: dict[str, list[Value | None]] = {}
        batch = self._batches.get(whole)
        if batch is None:
            batch = self._wanted(whole=whole)
        read = self._ask(pynvml.nvmlDeviceGetFieldValues, batch) or ()
        absent = set()
        for wanted, field in zip(batch, read, strict=False):
            if field.nvmlReturn:
                self._codes.add(field.nvmlReturn)
                absent |= {wanted} if field.nvmlReturn in _NEVER else set()
                continue
            number, link = wanted if isinstance(wanted, tuple) else (wanted, None)
            value = _field_value(number, field)
            if link is None:
                values[_NAMES[number]] = value
            else:
                links.setdefault(_NAMES[number], [None] * (self._links or 0))[link] = value
        self._batches[whole] = [wanted for wanted in batch if wanted not in absent]
        return links if fields.LINK_VITAL[fields.LINK_STATE] in links else links | self._link_states()

    def _try_again(self) -> None:
        self._tried += 1
        if self._tried >= _LEFT_OUT_FOR:
            self._tried, self._links = 0, self._count_links() or self._links
            self._batches.clear()

    def _wanted(self, *, whole: bool) -> list[Any]:
        if self._links is None:
            self._links = self._count_links()
        alone = list(fields.VITAL) + (list(fields.MORE) if whole else [])
        of_links = list(fields.LINK_VITAL) + (list(fields.LINK_MORE) if whole else [])
        return alone + [(number, link) for number in of_links for link in range(self._links)]

    def _count_links(self) -> int:
        count = self._ask(pynvml.nvmlDeviceGetFieldValues, [fields.LINK_COUNT])
        if count and not count[0].nvmlReturn:
            return min(int(_field_value(fields.LINK_COUNT, count[0])), _MOST_LINKS)
        return 0

    def _link_states(self) -> dict[str, list[Value | None]]:
        """One call for each link, for drivers without such a field."""
        states: list[Value | None] = []
        for link in range(_MOST_LINKS):
            state = self._ask(pynvml.nvmlDeviceGetNvLinkState, link)
            if state is None:
                break
            states.append(fields.LINK_STATES.get(state, str(state)))
        return {fields.LINK_VITAL[fields.LINK_STATE]: states} if states else {}

    def _ask(self, call: Callable[..., Any], *arguments: Any, must: bool = False) -> Any:
        """NVML's answer, None where there is none; the error is kept. *must*: every driver has this call."""
        try:
            return call(self._handle, *arguments)
        except symbols.REFUSALS as error:
            code = getattr(error, "value", pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
            self._codes.add(code)
            self._refusal = self._refusal or str(error)
            if must and code in _TROUBLE:
                self._codes.add(_FAILED)
            if code in {_LOST, _RESET_REQUIRED} or _FAILED in self._codes:
                self._error = self._error or str(error)
            return None

    def _state(self) -> str:
        for code, state in ((_LOST, LOST), (_RESET_REQUIRED, RESET_REQUIRED), (_FAILED, ERROR)):
            if code in self._codes:
                return state
        return OK


_NAMES = fields.VITAL | fields.MORE | fields.LINK_VITAL | fields.LINK_MORE


def absent(pci: str, error: Any) -> dict[str, Any]:
    """The report of a GPU for which NVML gives no handle."""
    state = {_LOST: LOST, _RESET_REQUIRED: RESET_REQUIRED}.get(
        error.value, ERROR if error.value in _TROUBLE else NO_ANSWER
    )
    return {"pci": pci, "state": state, "said": str(error), "values": {}, "links": {}}


def short(pci: str) -> str:
    """`00000000:3B:00.0` as the kernel writes it, `0000:3b:00.0`. Other text stays as it is."""
    domain, _, rest = pci.lower().partition(":")
    try:
        return f"{int(domain, 16):04x}:{rest}"
    except ValueError:
        return pci


def address(handle: Any) -> int:
    """A handle as a number, to recognise it in an event."""
    return int(pynvml.cast(handle, pynvml.c_void_p).value or 0)


def _validated(handle: Any) -> bool:
    pynvml.nvmlDeviceValidateInforom(handle)
    return True


def _answered(values: dict[str, Value | None]) -> dict[str, Value]:
    return {name: value for name, value in values.items() if value is not None}


def _field_value(number: int, field: Any) -> Value:
    value: float = getattr(field.value, _KINDS[field.valueType] if field.valueType < len(_KINDS) else "ullVal")
    if number == fields.LINK_STATE:
        return fields.LINK_STATES.get(int(value), str(value))
    if number in fields.NANOSECONDS:
        return float(value) / 1e9
    if number in fields.BIT_ERROR_RATES:
        packed = int(value)
        return float((packed >> 8) & 0xF) * 10.0 ** -(packed & 0xFF)
    return value


def _fabric_mask(mask: int) -> dict[str, Value]:
    answers = {1: "yes", 2: "no"}
    values = {what: answers.get((mask >> shift) & 3) for what, shift in fields.FABRIC_MASK.items()}
    configuration = fields.FABRIC_CONFIGURATION.get((mask >> fields.FABRIC_CONFIGURATION_SHIFT) & 0xF)
    return _answered(
        {f"nvml.fabric.{what}": answer for what, answer in {**values, "configuration": configuration}.items()}
    )
