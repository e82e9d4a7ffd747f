"""
Read the configuration file.

A file with any mistake is refused as a whole, and every mistake in it is named at once with its line and column. Values
are read by the type of their key, never by what YAML makes of them, so `no`, `1:30` and `2026-01-01` hold no surprises.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple, TypeVar

import yaml

from healthd.cli.configuration.checks import CHECKS, CHECKS_OF_SECTIONS, NAMED_ONCE
from healthd.cli.configuration.keys import ConfigKey, ConfigValue, keys_of, sections_of
from healthd.cli.errors import UserError
from healthd.core.config import REPLACED, Config, Policy, parse_duration
from healthd.core.nearest import nearest

__all__ = ["ConfigError", "Problem", "load", "parse"]

P = TypeVar("P", bound=Policy)

_MOST_BYTES = 1 << 20
"""No real configuration is that large. A path such as /dev/zero must not fill the memory."""
_NULLS = {"", "~", "null", "Null", "NULL"}


class Problem(NamedTuple):
    """One mistake. *line* and *column* count from 1; *key* is dotted, empty where no key is to blame."""

    line: int
    column: int
    key: str
    text: str


class ConfigError(UserError):
    """The file cannot be used; `problems` has every reason, in the order of the file."""

    def __init__(self, name: str, problems: Iterable[Problem]) -> None:
        self.problems = sorted(problems)
        lines = [f"{name}:{p.line}:{p.column}: {p.key}{': ' if p.key else ''}{p.text}" for p in self.problems]
        super().__init__(lines[0] if len(lines) == 1 else "\n  ".join([f"{len(lines)} mistakes in {name}", *lines]))


def load(path: Path | None) -> Config:
    """The configuration in *path*; without one, all defaults. Raises ConfigError, or UserError if it is unreadable."""
    if path is None:
        return Config()
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except FileNotFoundError:
        raise UserError(f"{path}: there is no such file; leave --config out to use the defaults") from None
    except IsADirectoryError:
        raise UserError(f"{path}: this is a directory; name the configuration file itself") from None
    except OSError as error:
        raise UserError(f"{path}: cannot read the configuration: {error.strerror}") from error
    return parse(content, str(path))


def parse(content: bytes, name: str) -> Config:
    """The configuration in *content*; *name* stands for the file in errors. Raises ConfigError."""
    if len(content) > _MOST_BYTES:
        raise ConfigError(name, [Problem(1, 1, "", "larger than 1 MiB; this is no configuration file")])
    root = _compose(content, name)
    if root is None:
        return Config()
    reading = _Reading()
    config = reading.section(root, Config, "")
    if config is None or reading.problems:
        raise ConfigError(name, reading.problems)
    return config


def _compose(content: bytes, name: str) -> yaml.Node | None:
    """The node tree of one YAML document, which keeps the position of each node."""
    try:
        text = content.decode("utf-8-sig")
        node: yaml.Node | None = yaml.compose(text, Loader=yaml.SafeLoader)
    except UnicodeDecodeError as error:
        problem = _after(error.object[: error.start].decode(), f"byte 0x{error.object[error.start]:02x} is not UTF-8")
    except yaml.reader.ReaderError as error:
        problem = _after(text[: error.position], f"character {chr(int(error.character))!r} is not allowed in YAML")
    except yaml.MarkedYAMLError as error:
        problem = _syntax_problem(error)
    except RecursionError:
        problem = Problem(1, 1, "", "nested too deeply")
    else:
        return node
    raise ConfigError(name, [problem])


def _after(text: str, message: str) -> Problem:
    return Problem(text.count("\n") + 1, len(text) - text.rfind("\n"), "", message)


def _syntax_problem(error: yaml.MarkedYAMLError) -> Problem:
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    text = ": ".join(part for part in (error.context, error.problem) if part)
    if "'\\t'" in text:
        text = "a tab; YAML allows only spaces here"
    return Problem(line, column, "", text)


class _Reading:
    """One pass over the node tree. It collects problems and does not stop at the first."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def section(self, node: yaml.Node, section: type[P], name: str) -> P | None:
        """The section read from *node*, or None when something in it is wrong."""
        if not isinstance(node, yaml.MappingNode) and not _is_null(node):
            self._refuse(node, name, f"must hold keys, such as `{section.__struct_fields__[0]}: …`")
            return None
        before = len(self.problems)
        entries = self._entries(node, section, name) if isinstance(node, yaml.MappingNode) else ()
        values = {key: self._value(child, section, key, name) for key, child in entries}
        if len(self.problems) > before:
            return None
        try:
            read = section(**values)
            if check := CHECKS_OF_SECTIONS.get(name):
                check(read)
            return read
        except ValueError as error:
            self._refuse(node, name, str(error))
            return None

    def _entries(self, node: yaml.MappingNode, section: type[Policy], name: str) -> Iterable[tuple[str, yaml.Node]]:
        """The known keys of a mapping, each once."""
        first: dict[str, int] = {}
        known = section.__struct_fields__
        for key_node, child in node.value:
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else ""
            path = _join(name, key)
            if not key:
                self._refuse(key_node, name, "a key must be a plain word")
            elif key in first:
                self._refuse(key_node, path, f"given twice; the first is in line {first[key]}")
            elif key not in known:
                self._refuse(key_node, path, REPLACED.get(path) or f"there is no such key{_nearest(key, known, name)}")
            else:
                yield key, child
            first.setdefault(key, key_node.start_mark.line + 1)

    def _value(self, node: yaml.Node, section: type[Policy], key: str, name: str) -> Policy | ConfigValue:
        path = _join(name, key)
        for nested, kind in sections_of(section):
            if nested == key:
                return self.section(node, kind, path)
        declared = keys_of(section)[key]
        if declared.many and isinstance(node, yaml.SequenceNode):
            return self._items(node, declared, path)
        try:
            return _read_value(node, declared, path)
        except ValueError as error:
            self._refuse(node, path, str(error))
            return None

    def _items(self, node: yaml.SequenceNode, key: ConfigKey, path: str) -> tuple[str | Policy, ...]:
        """The valid items of a list. Each other item is a separate problem."""
        items = [self._item(item, key, path) for item in node.value]
        if path in NAMED_ONCE:
            self._refuse_names_given_twice(node.value, path)
        return tuple(item for item in items if item is not None)

    def _refuse_names_given_twice(self, items: Iterable[yaml.Node], path: str) -> None:
        first: dict[str, int] = {}
        for named in filter(None, map(_name_of, items)):
            name, line = named.value.split(maxsplit=1)[0], named.start_mark.line + 1
            if name in first:
                self._refuse(named, path, f"{name} is there already; the first is in line {first[name]}")
            first.setdefault(name, line)

    def _item(self, node: yaml.Node, key: ConfigKey, path: str) -> str | Policy | None:
        if issubclass(key.kind, Policy):
            return self.section(node, key.kind, path)
        try:
            return str(_read_scalar(node, key, path))
        except ValueError as error:
            self._refuse(node, path, str(error))
            return None

    def _refuse(self, node: yaml.Node, key: str, text: str) -> None:
        mark = node.start_mark
        self.problems.append(Problem(mark.line + 1, mark.column + 1, key, text))


def _read_value(node: yaml.Node, key: ConfigKey, path: str) -> ConfigValue:
    """The value of one key. Raises ValueError, whose message says what it must be."""
    if _is_null(node):
        if key.nullable:
            return None
        raise ValueError(f"has no value; it must be {key.expected}. Leave the key out to use the default")
    if key.many:
        raise ValueError(f"must be {key.expected}")
    return _read_scalar(node, key, path)


def _read_scalar(node: yaml.Node, key: ConfigKey, path: str) -> ConfigValue:
    if not isinstance(node, yaml.ScalarNode):
        raise ValueError(f"must be {key.expected}, not {'a list' if isinstance(node, yaml.SequenceNode) else 'keys'}")
    value = _typed(node, key)
    if value is None or not key.allows(value):
        raise ValueError(f"must be {key.expected}, not {_quoted(node)}")
    if (check := CHECKS.get(path)) and value:
        check(str(value))
    return value


def _typed(node: yaml.ScalarNode, key: ConfigKey) -> ConfigValue:
    """The text of a node, converted to the type of its key. None when it is not of that type."""
    text = str(node.value)
    if key.kind is timedelta:
        return parse_duration(text)
    if issubclass(key.kind, StrEnum):
        return _member(text, key)
    if key.kind is str:
        return text
    if node.style is not None:  # quoted: a text, even if it looks like a number
        return None
    if key.kind is bool:
        return {"true": True, "false": False}.get(text.lower())
    return _number(text, key.kind)


def _member(text: str, key: ConfigKey) -> StrEnum:
    names = [str(member.value) for member in key.kind]  # type: ignore[attr-defined]  # _typed checked the enum
    if text not in names:
        raise ValueError(f"must be {key.expected}, not {text!r}{_nearest(text, names, '', otherwise=False)}")
    member: StrEnum = key.kind(text)
    return member


def _number(text: str, kind: type) -> int | float | None:
    if re.fullmatch(r"[-+]?\d{1,18}", text, re.ASCII):
        return int(text) if kind is int else float(text)
    try:
        number = float(text)
    except ValueError:
        return None
    return number if kind is float and math.isfinite(number) else None


def _name_of(item: yaml.Node) -> yaml.ScalarNode | None:
    """Where the name of an item of a list stands: it is the text itself, or its key `name`."""
    if isinstance(item, yaml.MappingNode):
        named = (value for key, value in item.value if isinstance(key, yaml.ScalarNode) and key.value == "name")
        item = next(named, item)
    return item if isinstance(item, yaml.ScalarNode) and item.value.strip() else None


def _is_null(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.style is None and node.value in _NULLS


def _join(section: str, key: str) -> str:
    return f"{section}.{key}" if section else key


def _quoted(node: yaml.ScalarNode) -> str:
    text = repr(node.value) if len(node.value) <= 60 else f"{node.value[:57]!r}…"
    return f"{text} in quotes" if node.style in {"'", '"'} else text


def _nearest(word: str, names: Sequence[str], section: str, *, otherwise: bool = True) -> str:
    """The end of an error message: the name that was probably meant, otherwise the valid names."""
    if found := nearest(word.lower(), names):
        return f'; did you mean "{found}"?'
    return f"; {section or 'the file'} has {', '.join(names)}" if otherwise else ""
