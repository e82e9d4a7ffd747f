"""
The grammar of disks and file systems. The words in `healthd.core.diagnosis.xid` decide what is a fault and what is
noise.

Source: `drivers/nvme`, `block/blk-core.c`, `fs/buffer.c`, `mm/page_io.c`, `drivers/scsi`, `drivers/ata`, `drivers/md`,
`drivers/block/rbd.c`, and the file systems of Linux; Lustre's client and its network (LNet).
"""

from __future__ import annotations

import re

from healthd.core.diagnosis.klog.message import FULL_ADDRESS, Message, MessageKind, first_address

_DISK = re.compile(
    rf"nvme(?: nvme[0-9]{{1,5}}| {FULL_ADDRESS}|[0-9]{{1,5}}(?:c[0-9]{{1,5}})?(?:n[0-9]{{1,5}})?): "
    r"|block nvme[0-9]{1,5}(?:c[0-9]{1,5})?n[0-9]{1,5}: "
    r"|(?:blk_update_request|print_req_error|end_request): .{1,64}? error, dev \w"
    r"|(?:I/O|timeout|protection|critical (?:medium|target|space allocation)|recoverable transport|device offline"
    r"|(?:kernel|device) resource|operation not supported|reservation conflict) error, dev \w"
    r"|Buffer I/O error on dev"
    r"|sd [0-9]{1,5}:[0-9]{1,5}:[0-9]{1,5}:[0-9]{1,20}: |ata[0-9]{1,5}(?:\.[0-9]{1,4})?: "
    r"|(?:Read|Write)-error on swap-device |rbd: |mpt[23]sas_cm[0-9]{1,3}: "
    rf"|(?:megaraid_sas|mpt[23]sas|hpsa|smartpqi|aacraid) {FULL_ADDRESS}: "
    r"|md(?:/raid\w{0,24}(?::\w{1,32})?)?: |device-mapper: |attempt to access beyond end of device",
    re.ASCII,
)
_FILESYSTEM = re.compile(
    r"EXT[234]-fs[ :]|JBD2: |Aborting journal on device |XFS(?: \([^)]{1,64}\))?: |BTRFS:? |FAT-fs \(|SQUASHFS error: "
    r"|F2FS-fs \(|(?:nfs|lockd): server |NFS[4v]{0,2}: |CIFS: |libceph: |ceph: |L(?:ustre|Net)(?:Error)?: "
    r"|WARNING: Pool '|VFS: file-max limit ",
    re.ASCII,
)


def parse_storage(text: str) -> Message | None:
    """Read a message about a disk or a file system; None if it is about neither."""
    if _DISK.match(text):
        return Message(kind=MessageKind.DISK, text=text, pci=first_address(text))
    if _FILESYSTEM.match(text):
        return Message(kind=MessageKind.FILESYSTEM, text=text)
    return None
