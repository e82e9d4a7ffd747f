"""
The old pods of a gang, for the fence. Those of a large gang are stored as one packed text: an object has a limit of
about 1.5 MB, and thousands of pods would exceed it.

Column by column, binary and compressed, a pod takes about 50 bytes instead of 400. Most of that cannot be compressed:
its uid, and until its end is proven the boot and the machine that it ran on. A digest of these is enough, because they
are only compared. If two digests are equal by chance, a reboot is not noticed and proves nothing.
"""

from __future__ import annotations

import base64
import hashlib
import math
import uuid
import zlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec

from healthd.core.api.meta import Slim
from healthd.core.untrusted import Moment, inflated

PACKED_ABOVE = 500
"""Pods. Up to this number they are written unpacked, so that people can read them."""
_DIGEST = 3
"""Bytes."""
_MARK = "~"
"""Begins a digest."""
_NOT_NEEDED: dict[str, Any] = {"since": None, "boot_id": "", "agent_boot_id": "", "machine": ""}
"""Fields that serve only to prove an end, and are dropped once it is proven."""
_SAME = b"="
"""Marks the boot that the agent reported, where the kubelet reported the same."""
_HERE = "\0"
"""Replaces the node of a pod in the text of its proof, and its index in its name."""
MOST_PODS = 30_000
"""The pods of the largest gang, and half as many that failed. Packed they take 1.3 MiB, which fits into an object."""
MOST_BYTES = 8 * 1024 * 1024
"""Of the pods of a gang, unpacked: twice what MOST_PODS take."""
LONGEST_CELL = 4096
"""Characters of a name or a proof, written out."""
_LATEST = 253_402_300_799
"""The last second that a datetime can hold."""

Cells = Annotated[list[Annotated[str, msgspec.Meta(max_length=LONGEST_CELL)]], msgspec.Meta(max_length=MOST_PODS)]
Places = Annotated[dict[str, str], msgspec.Meta(max_length=MOST_PODS)]
Identities = bytes | Annotated[list[bytes], msgspec.Meta(max_length=MOST_PODS)]


class FencedPod(Slim, frozen=True, kw_only=True):
    """A pod of a stopped attempt."""

    name: str
    """Its name. A later pod may have the same one."""
    uid: str
    """Its uid."""
    node: str
    """Where it ran; empty: it was never scheduled."""
    index: str = ""
    """Its place in the gang; empty where members have none."""
    since: Moment | None = None
    """When the kubelet started it, or else when it was created."""
    boot_id: str = ""
    """The boot id of its machine, as the kubelet first reported it."""
    agent_boot_id: str = ""
    """The same, as the agent first reported it."""
    machine: str = ""
    """The system UUID of its machine: another machine may get the name of the node."""
    proof: str = ""
    """Why it can no longer write; empty while there is no proof."""


class TooManyPods(ValueError):
    """More pods than fit into one object; the message is for a person."""


class _Columns(msgspec.Struct):
    name: Cells
    uid: bytes | Annotated[list[msgspec.Raw], msgspec.Meta(max_length=MOST_PODS)]
    node: Cells
    index: Cells
    proof: Cells
    since: Annotated[list[Annotated[int, msgspec.Meta(ge=0, le=_LATEST)]], msgspec.Meta(max_length=MOST_PODS)]
    boot: Identities
    agent: Annotated[list[bytes], msgspec.Meta(max_length=MOST_PODS)]
    machine: Identities
    moved: Places
    left: Cells | None


_COLUMNS = ("name", "uid", "node", "index", "proof", "since", "boot", "agent", "machine")


def packed(pods: Sequence[FencedPod], placement: Mapping[str, str]) -> str:
    """
    *pods* and *placement*, of which only what differs from where the pods were is written.

    Raises TooManyPods for more than can be read back.
    """
    if len(pods) > MOST_PODS:
        raise TooManyPods(f"a recovery can keep the record of {MOST_PODS:,} pods, and this gang has {len(pods):,}")
    open_ends = [msgspec.structs.replace(pod, **_NOT_NEEDED) if pod.proof else pod for pod in pods]
    columns: dict[str, Any] = {
        "name": [_without(pod.name, f"-{pod.index}", pod.index) for pod in pods],
        "uid": _joined([_bytes_of(pod.uid) for pod in pods]),
        "node": [pod.node for pod in pods],
        "index": [pod.index for pod in pods],
        "proof": [_without(pod.proof, pod.node, pod.node) for pod in pods],
        "since": [_seconds(pod.since) for pod in open_ends],
        "boot": _joined([_digest(pod.boot_id) for pod in open_ends]),
        "agent": [_SAME if is_same(p.agent_boot_id, p.boot_id) else _digest(p.agent_boot_id) for p in open_ends],
        "machine": _joined([_digest(pod.machine) for pod in open_ends]),
    }
    were = _places(pods)
    columns["moved"] = {index: node for index, node in placement.items() if were.get(index) != node}
    columns["left"] = [index for index in were if index not in placement] if placement else None
    return base64.b64encode(zlib.compress(msgspec.msgpack.encode(columns))).decode()


def unpacked(text: str) -> tuple[list[FencedPod], dict[str, str]]:
    """The pods, and the placement. Raises ValueError for a text that `packed` did not write."""
    try:
        columns = msgspec.msgpack.decode(inflated(text, MOST_BYTES), type=_Columns)
        count = len(columns.name)
        cells = {name: _apart(getattr(columns, name), count) for name in _COLUMNS}
        cells["uid"] = [_uid(cell, is_packed=isinstance(columns.uid, list)) for cell in cells["uid"]]
        pods = [_pod(*row) for row in zip(*cells.values(), strict=True)]
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ValueError(f"the packed pods of a recovery cannot be read: {error}") from error
    if columns.left is None:
        return pods, columns.moved
    left = set(columns.left)
    return pods, {index: node for index, node in _places(pods).items() if index not in left} | columns.moved


def is_same(recorded: str, now: str) -> bool:
    """Whether *recorded*, an identity or its digest, is that of *now*."""
    return recorded in (now, _text_of(_digest(now)))


def _pod(
    name: str,
    uid: str,
    node: str,
    index: str,
    proof: str,
    since: int,
    *identities: bytes,
) -> FencedPod:
    boot, agent, machine = map(_text_of, identities)
    agent = boot if identities[1] == _SAME else agent
    return FencedPod(
        name=_with(name, f"-{index}"),
        uid=uid,
        node=node,
        index=index,
        since=datetime.fromtimestamp(since, UTC) if since else None,
        boot_id=boot,
        agent_boot_id=agent,
        machine=machine,
        proof=_with(proof, node),
    )


def _uid(cell: bytes, *, is_packed: bool) -> str:
    """A UUID from its bytes. In a column that also has texts, each cell *is_packed* separately."""
    if not is_packed:
        return str(uuid.UUID(bytes=cell))
    try:
        return str(uuid.UUID(bytes=msgspec.msgpack.decode(cell, type=bytes)))
    except msgspec.ValidationError:
        return msgspec.msgpack.decode(cell, type=str)


def _places(pods: Sequence[FencedPod]) -> dict[str, str]:
    return {pod.index: pod.node for pod in pods if pod.index}


def _bytes_of(uid: str) -> bytes | str:
    """The bytes of a UUID; any other text unchanged."""
    try:
        found = uuid.UUID(uid)
    except ValueError:
        return uid
    return found.bytes if str(found) == uid else uid


def _joined(cells: list[Any]) -> Any:
    """Cells of one length are joined without separators; others stay a list."""
    widths = {len(cell) if isinstance(cell, bytes) else -1 for cell in cells}
    return b"".join(cells) if len(widths) == 1 and -1 not in widths else cells


def _apart(column: Any, count: int) -> Any:
    """The cells of a column: the inverse of `_joined`."""
    if not isinstance(column, bytes):
        return column
    width = len(column) // count if count else 0
    return [column[at * width : (at + 1) * width] for at in range(count)]


def _digest(identity: str) -> bytes:
    if identity.startswith(_MARK):
        return bytes.fromhex(identity.removeprefix(_MARK))
    return hashlib.sha256(identity.encode()).digest()[:_DIGEST] if identity else b""


def _text_of(digest: bytes) -> str:
    return f"{_MARK}{digest.hex()}" if digest else ""


def _seconds(at: datetime | None) -> int:
    return math.ceil(at.timestamp()) if at else 0


def _without(text: str, what: str, known: str) -> str:
    """*text* with *what*, which another column holds, replaced by a mark."""
    return text.replace(what, _HERE) if known else text


def _with(text: str, what: str) -> str:
    """The inverse of `_without`. Raises ValueError for a text that would become too long."""
    if len(text) + text.count(_HERE) * len(what) > LONGEST_CELL:
        raise ValueError("the packed pods of a recovery hold a text that is too long")
    return text.replace(_HERE, what)
