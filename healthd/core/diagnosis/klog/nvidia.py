"""
The grammar of NVIDIA's kernel modules: Xid, SXid (NVSwitch), and everything else they print.

An Xid line has had three generations of addresses (`0006:00`, `0000:3b:00`, `PCI:0000:3b:00 GPU-I:01`) and several of
owners (`pid='<unknown>'`, `pid=123`, none). The code is the first number after the address. Text may be missing or cut.
People who publish a line may redact it: an address or an owner of `xx` or dots is unknown. Source: `kernel_rc.c` of
NVIDIA's open GPU kernel modules, and lines seen in the field.
"""

from __future__ import annotations

import re

from healthd.core.diagnosis.klog.message import (
    ADDRESS,
    FULL_ADDRESS,
    LinkFault,
    Load,
    Message,
    MessageKind,
    Mig,
    first_address,
    normal_address,
)
from healthd.core.diagnosis.klog.process import COMM_LENGTH, VGPU_MANAGER

_XID = re.compile(
    r"NVRM:[ \t]{1,8}Xid\s{0,4}\(\s{0,4}(?:"
    r"(?:PCI:)?(?P<pci>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?)"
    r"|(?:PCI:)?(?P<short>[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?)"
    r"|(?:PCI:)?00(?P<bus>[0-9a-fA-F]{2}):(?P<slot>[0-9a-fA-F]{2})"
    r"|PCI:[0-9a-fA-FxX:.…*?#_<>-]{1,32}"
    r")(?:\s{1,4}GPU-I:(?P<gi>[0-9]{1,4}))?(?:\s{1,4}GPU-CI:(?P<ci>[0-9]{1,4}))?\s{0,4}\)\s{0,4}:\s{0,8}(?P<code>[0-9]{1,6})(?![0-9A-Za-z_])",
)
_PID = re.compile(
    r",?\s{0,8}pid=\s?(?:'(?P<quoted>[^']{0,32})'|(?P<plain><[^>\s]{0,32}>|[xX.…*?#]{1,8}|-?[0-9]{1,10}))(?=[\s,.]|$)"
)
_NAME = re.compile(r",?\s{0,8}name=(?:'(?P<quoted>[^']{0,64})'(?=[\s,.]|$)|(?P<plain>.{0,64}?)(?=,\s|,?$))", re.DOTALL)
_SXID = re.compile(
    rf"nvidia-nvswitch[0-9]{{0,4}}:\s{{1,8}}SXid\s{{0,4}}\((?:PCI:)?(?P<pci>{FULL_ADDRESS}|[0-9a-fA-F]{{4,8}}:[0-9a-fA-F]{{2}}:[0-9a-fA-F]{{2}})\)"
    r"\s{0,4}:\s{0,8}(?P<code>[0-9]{1,6})(?![0-9A-Za-z_])"
)
_NOISE = re.compile(r"NVRM: Xid\b|nvidia-nvswitch[0-9]{0,4}: (?:SXid|open|close|release)\b")
"""Lines that look like an error but have none that can be parsed, and the noise of opening a switch."""
_MODULES = r"drm|modeset|uvm|nvlink|nvswitch[0-9]{0,4}|peermem|fs|gpu|vgpu[-_]vfio|caps"
"""Listed one by one: `nvidia-smi: command not found` and similar lines come from programs."""
_MODULE = re.compile(
    rf"(?:NVRM:|NVRM(?=\s\w{{1,64}}:)|nvidia(?:[-_](?:{_MODULES}))?(?:\s{FULL_ADDRESS})?:"
    rf"|nvidia[-_]peermem|nv_peer_mem:?|\[nvidia-vgpu-vfio\]|nvrm-nvlog:|{VGPU_MANAGER})(?=\s|$)"
    r"|nvidia[-_]fs:\w"
)
_LOST = re.compile(
    rf"NVRM: (?:GPU (?:at )?(?:PCI:)?{ADDRESS}:? (?:GPU )?has fallen off the bus"
    rf"|(?:The NVIDIA GPU {FULL_ADDRESS}\s{{1,2}}(?:NVRM: )?\(PCI ID: [0-9a-fA-F:]{{1,32}}\)"
    r"(?: installed in this system has)?\s{1,2}(?:NVRM: )?)?fallen off the bus and is not responding(?: to commands)?)"
    r"[.!]?$",
)
"""Whole lines: this alone takes a node out of service, and other lines may contain text of a program."""
_LOAD_BEGINS = re.compile(r"nvidia-nvlink: Nvlink Core is being initialized(?:, major device number [0-9]{1,9})?$")
_LOADED = re.compile(r"NVRM: loading NVIDIA UNIX (?:[\w-]{1,16} )?(?:Open )?Kernel Module(?=\s|$)")
"""Printed once per load, after every GPU was set up."""
_QUOTES_A_CLIENT = re.compile(r"NVRM: (?:API mismatch|has the version)")
"""In these lines the driver repeats text of a program: any text, in any number of lines."""
_NVRM_ADDRESS = re.compile(
    r"PCI:(?P<slot>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?)(?![.0-9a-fA-F])"
    r"|GPU (?:at )?(?P<local>[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])(?![.0-9a-fA-F])"
)
_RECOVERY = re.compile(
    r"recovery action changed from 0x[0-9a-fA-F]{1,8}(?: \([^)]{0,64}\))? to 0x(?P<new>[0-9a-fA-F]{1,8})"
)
_NVLINK5 = re.compile(
    r"(?:^|,\s)(?P<unit>[A-Za-z][\w/ ]{0,40}?)\s{1,8}(?P<severity>Fatal|Non-?fatal)\b[^(,]{0,64}?"
    r"\bLink\s{1,4}(?P<link>-?[0-9]{1,4})(?P<words>\s?[(\[][0-9a-fA-Fx, ]{0,200})?",
    re.IGNORECASE,
)
_NVLINK4 = re.compile(r"link\s{1,4}(?P<link>[0-9]{1,4})\s?\((?P<words>[0-9a-fA-Fx, ]{0,200})", re.IGNORECASE)
_WORD = re.compile(r"0x([0-9a-fA-F]{1,16})")

FIRST_NVLINK5, LAST_NVLINK5 = 144, 150


def parse_nvidia(text: str) -> Message | None:
    """Parse a message of one of NVIDIA's modules. None if it has another source."""
    if found := _XID.match(text):
        return _parse_xid(text, found)
    if found := _SXID.match(text):
        return _parse_sxid(text, found)
    if _QUOTES_A_CLIENT.match(text):
        return Message(kind=MessageKind.NVRM, text=text)
    if _MODULE.match(text) and not _NOISE.match(text):
        is_lost = _LOST.match(text) is not None
        return Message(kind=MessageKind.NVRM, text=text, pci=_module_address(text), gpu_lost=is_lost, load=_load(text))
    return None


def _load(text: str) -> Load | None:
    if _LOAD_BEGINS.match(text):
        return Load.BEGINS
    return Load.DONE if _LOADED.match(text) else None


def _parse_xid(text: str, found: re.Match[str]) -> Message:
    code = int(found["code"])
    rest = text[found.end() :]
    pid, rest = _take_pid(rest)
    process, rest = _take_name(rest)
    detail = rest.lstrip(", ").strip()
    return Message(
        kind=MessageKind.XID,
        text=text,
        xid=code,
        pci=_xid_address(found),
        pid=pid,
        process=process,
        mig=_mig(found),
        detail=detail,
        link=_link_fault(code, detail),
        recovery=_recovery(detail) if code == 154 else None,
    )


def _xid_address(found: re.Match[str]) -> str | None:
    address = found["pci"] or found["short"] or (f"{found['bus']}:{found['slot']}" if found["bus"] else None)
    return normal_address(address) if address else None


def _take_pid(rest: str) -> tuple[int | None, str]:
    found = _PID.match(rest)
    if not found:
        return None, rest
    value = found["quoted"] if found["quoted"] is not None else found["plain"]
    # isascii: str.isdigit alone also accepts digits that int() takes from other scripts.
    return (int(value) if value.isascii() and value.isdigit() else None), rest[found.end() :]


def _take_name(rest: str) -> tuple[str | None, str]:
    found = _NAME.match(rest)
    if not found:
        return None, rest
    name: str = found["quoted"] if found["quoted"] is not None else found["plain"]
    if found.end() == len(rest) and len(name) < COMM_LENGTH:
        name = name.rstrip(". \r\n")  # a sentence that ends with the name; a cut name may end in a dot of its own
    return (None if name in {"", "<unknown>"} else name), rest[found.end() :]


def _mig(found: re.Match[str]) -> Mig | None:
    if found["gi"] is None:
        return None
    return Mig(gpu=int(found["gi"]), compute=int(found["ci"]) if found["ci"] is not None else None)


def _recovery(detail: str) -> int | None:
    found = _RECOVERY.search(detail)
    return int(found["new"], 16) if found else None


def _link_fault(code: int, detail: str) -> LinkFault | None:
    if code == 74 and (found := _last(_NVLINK4, detail)):
        return LinkFault(link=int(found["link"]), words=_words(found["words"]))
    if FIRST_NVLINK5 <= code <= LAST_NVLINK5 and (found := _last(_NVLINK5, detail)):
        link = int(found["link"])
        return LinkFault(
            link=None if link < 0 else link,
            words=_words(found["words"] or ""),
            unit=" ".join(found["unit"].split()),
            fatal=found["severity"].lower() == "fatal",
        )
    return None


def _last(grammar: re.Pattern[str], text: str) -> re.Match[str] | None:
    """The last match: the name of a process stands before the driver's words, and may look like them."""
    return max(grammar.finditer(text), key=lambda found: found.start(), default=None)


def _words(text: str) -> tuple[int, ...]:
    return tuple(int(word, 16) for word in _WORD.findall(text))


def _parse_sxid(text: str, found: re.Match[str]) -> Message:
    detail = text[found.end() :].lstrip(", ").strip()
    word = detail.partition(",")[0].strip().lower()
    return Message(
        kind=MessageKind.SXID,
        text=text,
        sxid=int(found["code"]),
        pci=normal_address(found["pci"]),
        detail=detail,
        fatal={"fatal": True, "non-fatal": False, "nonfatal": False}.get(word),
    )


def _module_address(text: str) -> str | None:
    """The device that the line is about. Some lines give it without a function, or without a domain."""
    short = _NVRM_ADDRESS.search(text)
    return normal_address(short["slot"] or short["local"]) if short else first_address(text)
