"""
Find errors in what the owner of a gang declared about its checkpoints. They are reported while the gang is healthy,
because a recovery could only hold the gang. Only the declaration is read here.
"""

from __future__ import annotations

from healthd.checkpoints.formats import UnknownFormat, declared
from healthd.controller.checkpoints.mounted import why_no_place
from healthd.core.api import ANNOTATION_CHECKPOINT, ANNOTATION_CHECKPOINT_FORMAT
from healthd.core.recovery.gang import Root


def misdeclared(root: Root) -> str:
    """What is wrong with the location or the format that *root* names; empty when both are right."""
    if why := why_no_place(root.options.checkpoint):
        return f"{ANNOTATION_CHECKPOINT}: {why}"
    if why := why_no_format(root.options.checkpoint_format):
        return f"{ANNOTATION_CHECKPOINT_FORMAT}: {why}"
    return ""


def why_no_format(text: str) -> str:
    """Why no checkpoint can be verified with the format *text*; empty when it can, or when no format is declared."""
    try:
        if text:
            declared(text)
    except UnknownFormat as error:
        return str(error)
    return ""
