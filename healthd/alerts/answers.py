"""
What the answer of an HTTP service proves, as far as its status says it.

Only an answer about the message itself is REFUSED for ever (400, 413, 422 and the like). A wrong key, a wrong address
or a redirect is RETRY: a person can put it right while the message waits.
"""

from __future__ import annotations

from typing import Any

import msgspec

from healthd.alerts.http import NoAnswer, Response
from healthd.alerts.sink import Answer, Outcome
from healthd.core.printable import printable

ABOUT_THE_MESSAGE = (400, 406, 411, 413, 414, 415, 422, 431)
"""The server understood who sends, and does not take this message. It will never take it."""
LONGEST_EXCERPT = 200
"""Characters of an answer that a detail repeats."""
_HINTS = {
    401: "the secret is wrong or has expired",
    403: "the secret does not allow this",
    404: "the address is wrong, or what it names was deleted",
    410: "what the address names was deleted",
    429: "too many messages",
}


def bad_status(response: Response) -> Outcome | None:
    """The outcome of a status that is no success. None for 2xx."""
    status = response.status
    if 200 <= status < 300:
        return None
    detail = f"answered {status}{_hint(status)}{said(response)}"
    if status in ABOUT_THE_MESSAGE:
        return Outcome(Answer.REFUSED, detail)
    return Outcome(Answer.RETRY, detail, response.retry_after)


def unexpected(response: Response, expected: str) -> Outcome:
    """A success of another form than the service's: perhaps a proxy answered in its place."""
    return Outcome(Answer.RETRY, f"answered {response.status} where the service answers {expected}{said(response)}")


def no_answer(error: NoAnswer, *, is_repeatable: bool) -> Outcome:
    """
    *is_repeatable*: the service knows a message that it already has, so a repetition changes nothing.

    A message whose fate is unknown is sent again in any case: twice is better than never.
    """
    doubt = "; it may have arrived, and then stands there twice" if error.was_sent and not is_repeatable else ""
    return Outcome(Answer.RETRY, f"{error}{doubt}")


def in_body(response: Response) -> dict[str, Any] | Outcome:
    """The JSON object in the body, for services that say there what happened. An outcome when there is none."""
    try:
        return msgspec.json.decode(response.body, type=dict[str, Any])
    except msgspec.MsgspecError:
        return unproven(response) if response.cut else unexpected(response, "with a JSON object")


def unproven(response: Response) -> Outcome:
    """The service took the message, and the end of its answer is missing."""
    return Outcome(Answer.UNKNOWN, f"answered {response.status}, but {response.cut}: this proves nothing more")


def said(response: Response) -> str:
    """The beginning of the body, for a detail."""
    text = printable(" ".join(response.body.decode(errors="replace").split()))
    return f": {text[:LONGEST_EXCERPT]}{'…' if len(text) > LONGEST_EXCERPT else ''}" if text else ""


def _hint(status: int) -> str:
    if 300 <= status < 400:
        return " (a redirect, which healthd does not follow: name the address that it leads to)"
    return f" ({_HINTS[status]})" if status in _HINTS else ""
