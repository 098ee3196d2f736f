"""TypedDicts to JSON Schema, for the answers that are written as such. Knows no endpoint."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from types import NoneType, UnionType
from typing import (
    Any,
    Literal,
    NotRequired,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

Schema = dict[str, object]

REF = "#/components/schemas/"
PLAIN: Mapping[object, Schema] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    NoneType: {"type": "null"},
    object: {},
    Any: {},
}


class TypedSchemas:
    """Collects every TypedDict that it meets as a component. Two of one name are told apart by
    their modules."""

    def __init__(self) -> None:
        self.components: dict[str, Schema] = {}
        self._names: dict[object, str] = {}

    def of(self, kind: object) -> Schema:
        """Raises TypeError for a type that no answer has so far."""
        if kind in PLAIN:
            return dict(PLAIN[kind])
        origin, arguments = get_origin(kind), get_args(kind)
        if origin is NotRequired:
            return self.of(arguments[0])
        if origin is Literal:
            return {"enum": list(arguments)}
        if origin in (Union, UnionType):
            return {"anyOf": [self.of(one) for one in arguments]}
        if origin in (list, Sequence):
            return {"type": "array", "items": self.of(arguments[0])}
        if origin in (dict, Mapping):
            return {"type": "object", "additionalProperties": self.of(arguments[1])}
        return self._named(kind)

    def _named(self, kind: object) -> Schema:
        if isinstance(kind, type) and issubclass(kind, StrEnum):
            return {"enum": [one.value for one in kind]}
        if isinstance(kind, type) and is_typeddict(kind):
            return {"$ref": REF + self._component(kind)}
        raise TypeError(f"no schema for {kind!r}")

    def _component(self, kind: type) -> str:
        known = self._names.get(kind)
        if known is not None:
            return known
        name = kind.__name__
        if name in self.components:
            name = f"{kind.__module__.rpartition('.')[2].title().replace('_', '')}{name}"
        assert name not in self.components, name
        self._names[kind] = name
        self.components[name] = {}
        hints = get_type_hints(kind, include_extras=True)
        self.components[name].update(
            {
                "type": "object",
                "properties": {key: self.of(hint) for key, hint in hints.items()},
                "required": [key for key in hints if get_origin(hints[key]) is not NotRequired],
            }
        )
        return name
