"""One message in several records."""

from __future__ import annotations

from healthd.core.diagnosis.klog import Partial, parse_message, stitch
from healthd.core.diagnosis.klog.stitch import PATIENCE

HEAD = "NVRM: The NVIDIA GPU 0000:d1:00.0"
MIDDLE = "NVRM: (PCI ID: 10de:2336) installed in this system has"
TAIL = "NVRM: fallen off the bus and is not responding to commands."


def stitched(*texts: str) -> list[str]:
    partial, read = Partial(), []
    for text in texts:
        partial, whole = stitch(partial, text)
        read.append(whole)
    return read


def test_the_last_record_gets_the_address_of_the_first() -> None:
    message = parse_message(stitched(HEAD, MIDDLE, TAIL)[-1])

    assert message is not None
    assert message.gpu_lost
    assert message.pci == "0000:d1:00.0"


def test_other_records_may_lie_between_and_pass_unchanged() -> None:
    texts = stitched(HEAD, "usb 1-1: new device", MIDDLE, "", TAIL)

    assert texts[1] == "usb 1-1: new device"
    assert "0000:d1:00.0" in texts[-1]


def test_an_end_without_a_beginning_stays_as_it_is() -> None:
    assert stitched(MIDDLE, TAIL) == [MIDDLE, TAIL]


def test_a_beginning_is_given_up_after_some_records() -> None:
    texts = stitched(HEAD, *["noise"] * (PATIENCE + 1), TAIL)

    assert texts[-1] == TAIL


def test_two_gpus_are_not_mixed_up() -> None:
    other = "NVRM: The NVIDIA GPU 0000:d2:00.0"

    texts = stitched(HEAD, MIDDLE, TAIL, other, MIDDLE, TAIL)

    assert "0000:d1:00.0" in texts[2]
    assert "0000:d2:00.0" in texts[5]
