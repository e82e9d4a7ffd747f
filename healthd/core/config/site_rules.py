"""A rule of a site's own, as an operator writes it."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from healthd.core.api.model import Blame
from healthd.core.config.base import Policy

SITE = "site-"
"""How the name of every rule of a site's own begins."""


class SiteRule(Policy, frozen=True, kw_only=True):
    """What a line of the kernel log, or a reading, means at this site: one of `message` and `reading`."""

    name: Annotated[
        str,
        Meta(
            description="The name in findings. It begins with `site-`, so that no rule of healthd's ever has it.",
            pattern=rf"^{SITE}[a-z0-9]+(-[a-z0-9]+)*$",
            max_length=63,
            extra={"shape": "`site-` and lower-case words with hyphens between, such as `site-mydrv-fatal`"},
        ),
    ] = ""
    message: Annotated[
        str,
        Meta(
            description="The kernel line, from its beginning to its end: `mydrv <device>: fatal error *`. `*` stands "
            "for any text, `<device>` for a PCI address, whose finding it becomes; without it the finding is the "
            "node's. It must begin with the name of a driver, and say more than that."
        ),
    ] = ""
    example: Annotated[
        str,
        Meta(description="A line of a log, word for word. If `message` does not fit it, the start is refused."),
    ] = ""
    reading: Annotated[
        str,
        Meta(description="Instead of `message`: what docs/findings/ says a rule reads, such as `ib.symbol_error`."),
    ] = ""
    when: Annotated[
        str,
        Meta(
            description="For a `message`: how often it must come, such as `3 in 1h`; empty is once. For a `reading`: "
            "`grows 50 in 1h`, `changes 6 in 1h`, `at least 90 for 5m`, `below 2` or `is DOWN for 1m`."
        ),
    ] = ""
    tier: Annotated[
        str,
        Meta(
            description="What follows: `record` (info), `application`, `suspect` or `ticket` (warning), `serious` or "
            "`reboot_idle` (error); `reset`, `reboot`, `mechanics` and `hardware` take the node out of service."
        ),
    ] = "ticket"
    summary: Annotated[str, Meta(description="What is wrong: half a sentence without a full stop.", max_length=200)] = (
        ""
    )
    advice: Annotated[
        str, Meta(description="What a person should do, where the tier does not say it.", max_length=400)
    ] = ""
    blame: Annotated[Blame, Meta(description="Whose fault it is.")] = Blame.UNKNOWN
    shadow: Annotated[
        bool,
        Meta(
            description="Whether the rule is only tried: its findings say what they would do, and do nothing. Look at "
            "them for some days before you write `false`."
        ),
    ] = True
