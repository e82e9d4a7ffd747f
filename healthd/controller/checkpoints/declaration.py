"""
What the owner of a gang declared of its checkpoints, and cannot be meant: said while the gang is healthy, since a
recovery could only hold it. Nothing is read here but the declaration.
"""

from __future__ import annotations

from healthd.checkpoints.formats import UnknownFormat, declared
from healthd.controller.checkpoints.mounted import why_no_place
from healthd.core.api import ANNOTATION_CHECKPOINT, ANNOTATION_CHECKPOINT_FORMAT
from healthd.core.recovery.gang import Root


def misdeclared(root: Root) -> str:
    """What is wrong with the place or the format that *root* names; empty where neither is."""
    if why := why_no_place(root.options.checkpoint):
        return f"{ANNOTATION_CHECKPOINT}: {why}"
    if why := why_no_format(root.options.checkpoint_format):
        return f"{ANNOTATION_CHECKPOINT_FORMAT}: {why}"
    return ""


def why_no_format(text: str) -> str:
    """Why no checkpoint can be verified as *text* declares it; empty where it can, or nothing is declared."""
    try:
        if text:
            declared(text)
    except UnknownFormat as error:
        return str(error)
    return ""
