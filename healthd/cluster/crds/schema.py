"""The structural schema of a kind, from its struct: types, and docstrings for `kubectl explain`."""

from __future__ import annotations

import ast
import enum
import inspect
import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TypeVar

import msgspec.inspect as shapes

from healthd.cluster.crds.bounds import BOUNDS, KEPT_DEFAULTS
from healthd.cluster.crds.rules import RULES, Schema
from healthd.core.api import (
    RESOURCES,
    ObjectMeta,
)
from healthd.core.api.meta import Slim


def schema_of(kind: type[Slim], api_version: str) -> Schema:
    """The schema of *kind*."""
    schema = _schema(shapes.type_info(kind))
    schema["properties"] = {
        "apiVersion": {"type": "string", "description": f"`{api_version}`."},
        "kind": {"type": "string", "description": f"`{RESOURCES[kind].kind}`."},
        **schema["properties"],
    }
    return schema


def _schema(shape: shapes.Type) -> Schema:
    """The structural schema of one type. Raises TypeError for a type that no struct should have."""
    match shape:
        case shapes.StructType():
            return _struct(shape)
        case shapes.EnumType(cls):
            return {"type": "string", "enum": [str(member.value) for member in cls], **_described(cls)}
        case shapes.UnionType(types):
            (alone,) = [one for one in types if not isinstance(one, shapes.NoneType)]
            return _schema(alone)  # None is left out on the wire
        case shapes.ListType(item_type=item, max_length=most) | shapes.VarTupleType(item_type=item, max_length=most):
            return {"type": "array", "items": _schema(item), **_known(maxItems=most)}
        case shapes.DictType(value_type=value, max_length=most):
            return {"type": "object", "additionalProperties": _schema(value), **_known(maxProperties=most)}
        case _:
            return _scalar(shape)


def _scalar(shape: shapes.Type) -> Schema:
    match shape:
        case shapes.StrType(max_length=most):
            return {"type": "string", **_known(maxLength=most)}
        case shapes.BoolType():
            return {"type": "boolean"}
        case shapes.IntType(ge=least, le=most):
            return {"type": "integer", "format": "int64", **_known(minimum=least, maximum=most and _as_float(most))}
        case shapes.FloatType(ge=least, le=most):
            return {"type": "number", **_known(minimum=least, maximum=most)}
        case shapes.DateTimeType():
            return {"type": "string", "format": "date-time"}
    raise TypeError(f"no schema is known for {shape}")


def _known(**limits: float | None) -> Schema:
    return {name: limit for name, limit in limits.items() if limit is not None}


def _as_float(most: int) -> int:
    """A maximum as the API server stores it, which is a float; never less than *most*."""
    return max(most, int(float(most)))


def _struct(shape: shapes.StructType) -> Schema:
    if shape.cls is ObjectMeta:
        return {"type": "object"}  # the API server has its own schema, and allows no other
    schema: Schema = {"type": "object", **_described(shape.cls)}
    if "description" in schema:
        schema["description"] = _in_wire_spelling(schema["description"], shape.fields)
    schema["properties"] = {field.encode_name: _field(shape.cls, field) for field in shape.fields}
    if required := [field.encode_name for field in shape.fields if field.required]:
        schema["required"] = required
    if rules := _of(RULES, shape.cls):
        schema["x-kubernetes-validations"] = [rule.to_schema() for rule in rules]
    return schema


T = TypeVar("T")


def _of(table: Mapping[type[Slim], T], cls: type) -> T | None:
    return next((value for kind, value in table.items() if kind is cls), None)


def _in_wire_spelling(description: str, fields: Sequence[shapes.Field]) -> str:
    """Docstrings name fields as Python does, *first_attempt*; a reader of `kubectl explain` knows `firstAttempt`."""
    names = {field.name: field.encode_name for field in fields}
    return re.sub(r"\*(\w+)\*", lambda match: f"`{names.get(match[1], match[1])}`", description)


def _field(owner: type, field: shapes.Field) -> Schema:
    schema = _schema(field.type)
    schema.update((_of(BOUNDS, owner) or {}).get(field.name, {}))
    if description := _field_descriptions(owner).get(field.name):
        schema["description"] = description
    defaults = _of(KEPT_DEFAULTS, owner) or {}
    if field.name in defaults:
        default = defaults[field.name]
        schema["default"] = default.value if isinstance(default, enum.Enum) else default
    return schema


def _described(cls: type) -> Schema:
    description = inspect.getdoc(cls)
    return {"description": _flat(description)} if description else {}


@cache
def _field_descriptions(owner: type) -> dict[str, str]:
    """The docstrings under the fields of *owner*, from its source: Python drops them."""
    (body,) = [node for node in ast.walk(ast.parse(inspect.getsource(owner))) if isinstance(node, ast.ClassDef)]
    description: dict[str, str] = {}
    for field, after in zip(body.body, body.body[1:], strict=False):
        match field, after:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                description[name] = _flat(inspect.cleandoc(text))
    return description


def _flat(text: str) -> str:
    """Each paragraph on one line: `kubectl explain` wraps the text itself."""
    return "\n\n".join(re.sub(r"\s+", " ", paragraph).strip() for paragraph in text.split("\n\n"))
