"""Whether a document agrees with a schema, by the words that the schemas of this package use.

``jsonschema`` says what is wrong; to import it, and to walk a large document that is right with it, takes a tenth of a short compilation.
So documents that are right are not shown to it. What is not understood here counts as wrong.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

_TYPES: Mapping[str, Callable[[Any], bool]] = {
    "integer": lambda value: type(value) is int,
    "number": lambda value: type(value) in (int, float),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
    "null": lambda value: value is None,
}
_IS_NUMBER, _IS_TEXT, _IS_LIST, _IS_TABLE = (_TYPES[name] for name in ("number", "string", "array", "object"))

# By word: of which values it says something, and whether one is as it says. Of others it says nothing.
_LIMITS: Mapping[str, tuple[Callable[[Any], bool], Callable[[Any, Any], bool]]] = {
    "minimum": (_IS_NUMBER, lambda value, least: value >= least),
    "maximum": (_IS_NUMBER, lambda value, most: value <= most),
    "exclusiveMinimum": (_IS_NUMBER, lambda value, least: value > least),
    "minLength": (_IS_TEXT, lambda value, least: len(value) >= least),
    "maxLength": (_IS_TEXT, lambda value, most: len(value) <= most),
    "pattern": (_IS_TEXT, lambda value, pattern: re.search(pattern, value) is not None),
    "minItems": (_IS_LIST, lambda value, least: len(value) >= least),
    "maxItems": (_IS_LIST, lambda value, most: len(value) <= most),
    "minProperties": (_IS_TABLE, lambda value, least: len(value) >= least),
    "maxProperties": (_IS_TABLE, lambda value, most: len(value) <= most),
    "required": (_IS_TABLE, lambda value, names: all(name in value for name in names)),
    "dependentRequired": (_IS_TABLE, lambda value, more: all(other in value for name in more if name in value for other in more[name])),
    "type": (lambda _: True, lambda value, names: any(_TYPES[n](value) for n in ([names] if isinstance(names, str) else names))),
    "const": (lambda _: True, lambda value, wanted: type(value) is type(wanted) and value == wanted),
    "enum": (lambda _: True, lambda value, able: any(type(value) is type(one) and value == one for one in able)),
}
_SAYS_NOTHING = {"$schema", "$defs", "title", "description"}
_TOGETHER = {"properties", "additionalProperties"}
_OF_IF = {"then", "else"}


def value_agrees(value: Any, schema: Any, whole: Mapping[str, Any]) -> bool:
    """Whether a value is as a schema says, for certain; ``whole`` is the document that the schema is a part of."""
    if isinstance(schema, bool):
        return schema
    return all(_word_holds(value, word, wanted, schema, whole) for word, wanted in schema.items())


def _word_holds(value: Any, word: str, wanted: Any, schema: Mapping[str, Any], whole: Mapping[str, Any]) -> bool:
    """Whether a value is as one word of a schema says."""
    if word in _LIMITS:
        concerns, holds = _LIMITS[word]
        return not concerns(value) or holds(value, wanted)
    if word in _SAYS_NOTHING or (word in _OF_IF and "if" in schema):
        return True
    if word in _TOGETHER:
        return (
            not isinstance(value, dict)
            or (word == "additionalProperties" and "properties" in schema)
            or _fields_agree(value, schema, whole)
        )
    if word == "prefixItems":
        return not isinstance(value, list) or all(value_agrees(one, each, whole) for one, each in zip(value, wanted, strict=False))
    if word == "items":
        return not isinstance(value, list) or all(value_agrees(one, wanted, whole) for one in value[len(schema.get("prefixItems", ())) :])
    if word == "$ref" and wanted.startswith("#/$defs/"):
        return value_agrees(value, whole["$defs"][wanted.removeprefix("#/$defs/")], whole)
    if word == "if" and _is_exact(wanted):
        return value_agrees(value, schema.get("then" if value_agrees(value, wanted, whole) else "else", True), whole)
    if word in ("allOf", "anyOf"):
        return (all if word == "allOf" else any)(value_agrees(value, one, whole) for one in wanted)
    return False


def _fields_agree(value: Mapping[str, Any], schema: Mapping[str, Any], whole: Mapping[str, Any]) -> bool:
    """Whether the fields of a table are as those that the schema knows, and others as it says of them."""
    known, others = schema.get("properties", {}), schema.get("additionalProperties", True)
    return "patternProperties" not in schema and all(value_agrees(one, known.get(name, others), whole) for name, one in value.items())


def _is_exact(schema: Mapping[str, Any]) -> bool:
    """Whether what does not agree with a schema here is wrong for certain, too."""
    limits = _LIMITS.keys() - {"const", "enum"}
    return all(word in limits or (word == "properties" and all(map(_is_exact, inner.values()))) for word, inner in schema.items())
