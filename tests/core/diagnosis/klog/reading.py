"""How these tests read a message: as the agent does, which looks at the raw record before it reads it."""

from __future__ import annotations

from healthd.core.diagnosis.klog import Message, parse_message
from healthd.probes.klog.record import may_matter


def read(text: str) -> Message:
    """What the grammar reads in *text*, which must be something; the reader's prefilter must let it through."""
    message = parse_message(text)

    assert message is not None, f"not understood: {text}"
    assert may_matter(f"6,1,1,-;{text}".encode()), f"would be dropped before it is read: {text}"
    return message
