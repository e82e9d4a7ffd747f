"""
The words for the parts of a gang in messages: Kubernetes terms in a cluster, terms of one server under `healthd run`.

The decisions are the same in both cases, but the readers of a message know only one of them. So each root has its
terms (`Root.terms`), and a message takes its nouns from there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Nouns in the singular; their plural ends in `s`."""

    gang: str
    member: str
    """A unit that makes progress together with the others."""
    pod: str
    """A member as an object with its own name."""
    node: str
    counted: str
    """What the time of a gang is multiplied by. A run is counted by its slots, whether these are GPUs or not."""
    by_index: bool
    """People know a member by its index, and not by the name of its pod."""

    def named(self, name: str, index: str) -> str:
        """One member, as people know it: by the *name* of its pod, or by its *index*."""
        return f"{self.member} {index}" if self.by_index and index else name

    def worded(self, finding: str) -> str:
        """The text of a *finding*. Rules write it for a node of a cluster; here it is reworded for one server."""
        return _of_one_server(finding) if self.by_index else finding

    @property
    def refusal(self) -> str:
        """Why a node that needs quarantine may not be in quarantine."""
        return "the budget is used up" if self.by_index else "the budget is used up, or healthd may not cordon"

    def located(self, place: str) -> str:
        """The location of checkpoints, as people write it: on one server without `file://`."""
        return unquote(place.removeprefix("file://")) if self.by_index else place

    def ended_on(self, node: str) -> str:
        """The proof text: the program that ran a member there saw all of its processes end."""
        return "all of its processes were seen to end" if self.by_index else _KUBELET_SAW.format(node=node)


_SERVER = (
    (re.compile(r"\b(?:the|this) node\b"), "this server"),
    (re.compile(r"\bnode(s?)\b"), r"server\1"),
    (re.compile(r"\bNode(s?)\b"), r"Server\1"),
    (re.compile(r"\bTell the owner of the job\b"), "Look at the program"),
    (re.compile(r"\bthe jobs?\b"), "the run"),
)


def _of_one_server(text: str) -> str:
    for word, its_own in _SERVER:
        text = word.sub(its_own, text)
    return text


_KUBELET_SAW = "the kubelet of {node} reports every container terminated"

KUBERNETES = Terms(gang="gang", member="member", pod="pod", node="node", counted="GPU", by_index=False)
ONE_SERVER = Terms(gang="run", member="rank", pod="rank", node="slot", counted="slot", by_index=True)
