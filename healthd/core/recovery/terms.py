"""
The words for the parts of a gang: those of Kubernetes in a cluster, those of one server under `healthd run`.

A decision is the same in both worlds, and its reason is read by people of one of them. So each root says in which terms
it is spoken of (`Root.terms`), and a message takes its nouns from there.
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
    """One that makes progress with the others."""
    pod: str
    """A member as an object with a name of its own."""
    node: str
    by_index: bool
    """People know a member by its index, and not by the name of its pod."""

    def named(self, name: str, index: str) -> str:
        """One member, by what people know it by: the *name* of its pod, or its *index*."""
        return f"{self.member} {index}" if self.by_index and index else name

    def worded(self, finding: str) -> str:
        """What a *finding* says, which rules word for the node of a cluster, as people say it of one server."""
        return _of_one_server(finding) if self.by_index else finding

    @property
    def refusal(self) -> str:
        """Why a node that asks for it may not be in quarantine."""
        return "the budget is used up" if self.by_index else "the budget is used up, or healthd may not cordon"

    def located(self, place: str) -> str:
        """Where checkpoints are, as people write it there."""
        return unquote(place.removeprefix("file://")) if self.by_index else place

    def ended_on(self, node: str) -> str:
        """The proof that the program which ran a member there saw all of it end."""
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

KUBERNETES = Terms(gang="gang", member="member", pod="pod", node="node", by_index=False)
ONE_SERVER = Terms(gang="run", member="rank", pod="rank", node="slot", by_index=True)
