"""One JSON Schema as the comparison sees it: a plain type with its keywords, or a combination of schemas.

Draft 4 to 2020-12 say the same with different keywords: `items` and `prefixItems`, `dependencies` and
`dependentRequired`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

_COMBINING: Final = ("allOf", "anyOf", "oneOf")
_OF_TYPE: Final[Mapping[str, str]] = {
    **dict.fromkeys(("maxLength", "minLength", "pattern"), "string"),
    **dict.fromkeys(("maximum", "minimum", "exclusiveMaximum", "exclusiveMinimum", "multipleOf"), "number"),
    **dict.fromkeys(
        (
            *("properties", "required", "additionalProperties", "patternProperties", "maxProperties", "minProperties"),
            *("dependencies", "dependentRequired", "dependentSchemas", "propertyNames", "unevaluatedProperties"),
        ),
        "object",
    ),
    **dict.fromkeys(
        (
            *("items", "prefixItems", "additionalItems", "maxItems", "minItems", "uniqueItems", "contains"),
            *("maxContains", "minContains", "unevaluatedItems"),
        ),
        "array",
    ),
}


class View(NamedTuple):
    """`kind` is any, none, enum, not, one of the three combinations, or a type; `parts` are what it combines."""

    kind: str
    schema: Mapping[str, Any]
    parts: tuple[Any, ...] = ()

    @property
    def is_combined(self) -> bool:
        return self.kind in _COMBINING


def view(schema: Any) -> View:
    """The view of a schema without `$ref`. Several kinds of keywords in one schema are an `allOf` of them."""
    if schema is True:
        return View("any", {})
    if not isinstance(schema, dict):
        return View("none", {})
    parts = _parts(schema)
    if not parts:
        return View("any", schema)
    return parts[0] if len(parts) == 1 else View("allOf", schema, tuple(part.schema for part in parts))


def _parts(schema: Mapping[str, Any]) -> list[View]:
    parts: list[View] = []
    for name in _COMBINING:
        if isinstance(schema.get(name), list):
            parts.append(View(name, {name: schema[name]}, tuple(schema[name])))
    if "not" in schema:
        parts.append(View("not", {"not": schema["not"]}))
    if "const" in schema:
        parts.append(View("enum", {"enum": [schema["const"]]}))
    if isinstance(schema.get("enum"), list):
        # The values are a stricter condition than their type.
        parts.append(View("enum", {"enum": schema["enum"]}))
        return parts
    own = {name: value for name, value in schema.items() if name in _OF_TYPE or name in ("type", "default")}
    return parts + _typed(own)


def _typed(own: Mapping[str, Any]) -> list[View]:
    kinds = own.get("type")
    if isinstance(kinds, str):
        return [View(kinds, own)]
    if isinstance(kinds, list):
        chosen = tuple(_for_type(own, kind) for kind in kinds)
        return [View(str(kinds[0]), chosen[0])] if len(chosen) == 1 else [View("anyOf", {"anyOf": chosen}, chosen)]
    implied = list(dict.fromkeys(_OF_TYPE[name] for name in own if name in _OF_TYPE))
    if not implied:
        return []
    if len(implied) == 1:
        return [View(implied[0], own)]
    chosen = tuple(_for_type(own, kind) for kind in implied)
    return [View("anyOf", {"anyOf": chosen}, chosen)]


def _for_type(own: Mapping[str, Any], kind: str) -> dict[str, Any]:
    family = "number" if kind == "integer" else kind
    return {"type": kind} | {name: value for name, value in own.items() if _OF_TYPE.get(name) == family}
