"""
Functions of NVML that exist in several versions. The binding knows only the newest.

A driver has all the versions that existed when it was made, so an old driver is called by the newest that it has.
"""

from __future__ import annotations

from typing import Any

import pynvml

REFUSALS = (pynvml.NVMLError, pynvml.NVMLLibraryMismatchError)
"""The errors of the binding. The second one where a driver does not have the newest version of a function."""


def initialise() -> None:
    """Raises NVMLError."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError_FunctionNotFound:
        _check(_newest("nvmlInit_v2", "nvmlInit")())


def count() -> int:
    """How many GPUs NVML lists. Raises NVMLError."""
    number = pynvml.c_uint()
    _check(_newest("nvmlDeviceGetCount_v2", "nvmlDeviceGetCount")(pynvml.byref(number)))
    return int(number.value)


def handle(index: int) -> Any:
    """Raises NVMLError."""
    found = pynvml.c_nvmlDevice_t()
    call = _newest("nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex")
    _check(call(pynvml.c_uint(index), pynvml.byref(found)))
    return found


def bus_id(gpu: Any) -> str:
    """The PCI address, as NVML writes it. Raises NVMLError."""
    info = pynvml.nvmlPciInfo_t()
    call = _newest("nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetPciInfo_v2")
    _check(call(gpu, pynvml.byref(info)))
    # The older structure ends before the longer address, and has the short one where the newer one keeps it.
    return text(info.busId if call.__name__.endswith("_v3") else info.busIdLegacy)


def processes(gpu: Any) -> int:
    """How many processes compute on it. All versions count alike; the newer ones give more detail of each process."""
    number = pynvml.c_uint(0)
    name = "nvmlDeviceGetComputeRunningProcesses"
    code = _newest(f"{name}_v3", f"{name}_v2", name)(gpu, pynvml.byref(number), None)
    if code != pynvml.NVML_ERROR_INSUFFICIENT_SIZE:
        _check(code)
    return int(number.value)


def text(word: str | bytes) -> str:
    """A string of NVML, whatever type the binding returns."""
    return word.decode("utf-8", "replace") if isinstance(word, bytes) else word


def _newest(*names: str) -> Any:
    for name in names:
        try:
            return getattr(pynvml.nvmlLib, name)
        except AttributeError:  # not in this driver
            continue
    raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)


def _check(code: int) -> None:
    if code:
        raise pynvml.NVMLError(code)
