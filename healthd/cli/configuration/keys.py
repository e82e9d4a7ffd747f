"""Every key of the configuration file with its type, limits and meaning, as `healthd.core.config` declares them."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

import msgspec

from healthd.core.config import Policy, format_duration

ConfigValue = bool | int | float | str | timedelta | StrEnum | tuple[str | Policy, ...] | None
"""The types that a key can have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigKey:
    """
    One key of one section. `kind` is its type without None, or that of its items where it holds *many*; `nullable` says
    whether `null` is allowed.
    """

    name: str
    kind: type
    many: bool
    nullable: bool
    default: ConfigValue
    meta: msgspec.Meta

    @property
    def expected(self) -> str:
        """What a value must be, to follow the words "must be"."""
        shape = (self.meta.extra or {}).get("shape", "")
        if issubclass(self.kind, StrEnum):
            words = _either([f"`{member.value}`" for member in self.kind])
        else:
            words = shape or f"{self._kind()}{self._limits()}"
        words = f"a list, each item of it {words}" if self.many else words
        return f"{words}, or `null`" if self.nullable else words

    def allows(self, value: ConfigValue) -> bool:
        """Whether a value of the right type keeps the limits."""
        if isinstance(value, timedelta):
            return value >= self._least()
        try:
            msgspec.convert(value, typing.Annotated[self.kind, self.meta])
        except msgspec.ValidationError:
            return False
        return True

    def _kind(self) -> str:
        if issubclass(self.kind, Policy):
            return f"keys such as `{self.kind.__struct_fields__[0]}: …`"
        return _KINDS[self.kind]

    def _limits(self) -> str:
        if self.kind is timedelta:
            return f", at least {format_duration(self._least())}" if self._least() else ""
        least, most = self.meta.ge, self.meta.le
        limits = f", at least {least:g}" if least is not None else ""
        limits += f", at most {most:g}" if most is not None else ""
        return limits or (", not empty" if self.meta.min_length else "")

    def _least(self) -> timedelta:
        least = (self.meta.extra or {}).get("at_least", timedelta(0))
        assert isinstance(least, timedelta)
        return least


_KINDS: dict[type, str] = {
    bool: "`true` or `false`",
    int: "a whole number",
    float: "a number",
    str: "text",
    timedelta: "a duration such as 250ms, 30s, 5m or 1h30m",
}


def keys_of(section: type[Policy]) -> dict[str, ConfigKey]:
    """The keys of one section in the order of their declaration, without those that are sections themselves."""
    hints = typing.get_type_hints(section, include_extras=True)
    return {
        field.name: _key(field, hints[field.name])
        for field in msgspec.structs.fields(section)
        if typing.get_origin(hints[field.name]) is typing.Annotated
    }


def sections_of(parent: type[Policy]) -> Iterator[tuple[str, type[Policy]]]:
    """The sections directly within *parent*."""
    for name, hint in typing.get_type_hints(parent).items():
        if isinstance(hint, type) and issubclass(hint, Policy):
            yield name, hint


def _key(field: msgspec.structs.FieldInfo, hint: typing.Any) -> ConfigKey:
    declared, meta = typing.get_args(hint)
    many = typing.get_origin(declared) is tuple
    if many:
        declared = typing.get_args(declared)[0]
    kinds = typing.get_args(declared) if isinstance(declared, types.UnionType) else (declared,)
    return ConfigKey(
        name=field.name,
        kind=next(kind for kind in kinds if kind is not types.NoneType),
        many=many,
        nullable=types.NoneType in kinds,
        default=field.default,
        meta=meta,
    )


def spell(value: ConfigValue) -> str:
    """A value as one writes it in the file."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case timedelta():
            return format_duration(value)
        case str():
            return str(value) or '""'
        case tuple():
            return f"[{', '.join(map(str, value))}]"
        case _:
            return f"{value:g}"


def _either(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
