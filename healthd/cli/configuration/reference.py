"""The page `docs/configuration.md`, written from the same declarations that read the file."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

from healthd.cli.configuration.keys import ConfigKey, keys_of, sections_of, spell
from healthd.core.config import Config, Policy

_HEAD = """\
# Configuration

<!-- Written by `healthd config --reference`: to change it, change the descriptions in healthd/core/config. -->

healthd reads one YAML file: `healthd run --config healthd.yaml …`. Every section and every key may be left out; an
empty file means all defaults. A key that does not exist, a value that is not allowed or a key given twice stops the
start, and every mistake is named with its line and column. `healthd config --check healthd.yaml` says the same without
starting.

Durations are a number with a unit (`ms`, `s`, `m`, `h`, `d`), the largest unit first: `250ms`, `30s`, `5m`, `1h30m`.

The file with every default written out:

"""


def reference() -> str:
    """The whole page, as Markdown."""
    keys, sections = list(keys_of(Config).values()), list(sections_of(Config))
    parts = [*map(_key, keys), *(_section(name, section) for name, section in sections)]
    return f"{_HEAD}{_example(keys, sections)}\n" + "\n".join(parts)


def _example(keys: list[ConfigKey], sections: list[tuple[str, type[Policy]]]) -> str:
    lines = [f"{key.name}: {spell(key.default)}" for key in keys]
    for name, section in sections:
        lines += [f"{name}:", *(f"  {key.name}: {spell(key.default)}" for key in keys_of(section).values())]
    return "\n".join(["```yaml", *lines, "```", ""])


def _key(key: ConfigKey) -> str:
    """A key of no section."""
    return "\n".join([f"## `{key.name}`", "", _facts(key), "", _flat(key.meta.description or ""), ""])


def _section(name: str, section: type[Policy]) -> str:
    about = _flat(inspect.getdoc(section) or "")
    return "\n".join([f"## `{name}`", "", about, "", *_entries(name, section), ""]).rstrip("\n") + "\n"


def _entries(name: str, section: type[Policy]) -> Iterator[str]:
    for key in keys_of(section).values():
        yield from (f"### `{name}.{key.name}`", "", _facts(key), "", _flat(key.meta.description or ""), "")
        if issubclass(key.kind, Policy):
            yield from _entries(f"{name}.{key.name}", key.kind)


def _facts(key: ConfigKey) -> str:
    expected = key.expected[:1].upper() + key.expected[1:]
    return f"{expected}. Default: `{spell(key.default)}`."


def _flat(text: str) -> str:
    """Each paragraph on one line: the viewer of the page wraps the lines."""
    return "\n\n".join(re.sub(r"\s+", " ", paragraph) for paragraph in text.split("\n\n"))
