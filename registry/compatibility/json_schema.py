"""JSON Schema: what the update of a schema changes, and whether a reader with the update minds, as Confluent's registry
decides.

The content model matters. An object that allows other properties than it names (`additionalProperties` is not false)
is open: it may already have values of any type at the name of a new property, so none can be added; but any can be
removed. A closed one allows the contrary.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from ottla.registry.compatibility.json_differences import message
from ottla.registry.compatibility.json_views import View, view
from ottla.registry.errors import invalid_schema
from ottla.registry.formats.json_schema import JsonSchema
from ottla.registry.formats.json_text import dumps
from ottla.registry.limits import MAX_COMPARISONS, MAX_MESSAGES
from ottla.schemas.json_text import MAX_DEPTH

_UPPER: Final = {"maxLength": "MAX_LENGTH", "maxProperties": "MAX_PROPERTIES", "maxItems": "MAX_ITEMS"}
_LOWER: Final = {"minLength": "MIN_LENGTH", "minProperties": "MIN_PROPERTIES", "minItems": "MIN_ITEMS"}
_UPPER_NUMBER: Final = {"maximum": "MAXIMUM", "exclusiveMaximum": "EXCLUSIVE_MAXIMUM"}
_LOWER_NUMBER: Final = {"minimum": "MINIMUM", "exclusiveMinimum": "EXCLUSIVE_MINIMUM"}
_MAX_RESOLVED: Final = 100


def messages(reader: JsonSchema, writer: JsonSchema, *, is_reader_new: bool) -> list[str]:
    """Why `reader` does not accept all that `writer` does; empty if it does."""
    comparison = _Comparison(reader, writer, is_reader_new=is_reader_new)
    comparison.compare(writer.root, writer.base, reader.root, reader.base, "#")
    return comparison.found


class _Comparison:
    """`old` is the writer's schema here and `new` the reader's, whichever of them is the newer one."""

    def __init__(self, reader: JsonSchema, writer: JsonSchema, *, is_reader_new: bool) -> None:
        self.found: list[str] = []
        self._reader, self._writer = reader, writer
        self._names = ("new", "old") if is_reader_new else ("old", "new")
        self._steps = 0
        self._compared: dict[tuple[int, int], bool] = {}
        self._trail: list[tuple[int, int]] = []
        self._kept: list[Any] = []
        self._depth = 0

    def compare(self, old: Any, old_base: str, new: Any, new_base: str, path: str) -> None:
        """Report the differences by which a reader with `new` does not accept values of `old`."""
        self._steps += 1
        if self._steps > MAX_COMPARISONS:
            raise invalid_schema("The schemas are too large to be compared: they have too many combinations")
        if self._depth > 4 * MAX_DEPTH:
            raise invalid_schema("The schemas are nested too deeply to be compared")
        old, old_base = _resolved(self._writer, old, old_base)
        new, new_base = _resolved(self._reader, new, new_base)
        if isinstance(old, dict) and isinstance(new, dict):
            pair = id(old), id(new)
            if pair in self._compared:
                if not self._compared[pair]:
                    self._tell("TYPE_CHANGED", path)
                return
            # While a pair is being compared, it counts as equal: a recursive schema contains itself.
            self._compared[pair] = True
            self._trail.append(pair)
            self._kept += (old, new)  # so that no other object gets their identity
            found = len(self.found)
            self._compare_deeper(view(old), old_base, view(new), new_base, path)
            self._compared[pair] = len(self.found) == found
        else:
            self._compare_deeper(view(old), old_base, view(new), new_base, path)

    def _compare_deeper(self, old: View, old_base: str, new: View, new_base: str, path: str) -> None:
        self._depth += 1
        try:
            self._compare(old, old_base, new, new_base, path)
        finally:
            self._depth -= 1

    def _compare(self, old: View, old_base: str, new: View, new_base: str, path: str) -> None:
        if old.kind == "none" or new.kind == "any":
            return
        if new.is_combined and not old.is_combined:
            if len(new.parts) == 1 or new.kind in ("anyOf", "oneOf"):
                if any(self._accepts(old.schema, old_base, part, new_base) for part in new.parts):
                    return
            elif all(self._accepts(old.schema, old_base, part, new_base) for part in new.parts):
                return
            self._tell("TYPE_CHANGED", path)
        elif old.is_combined and not new.is_combined:
            self._from_combined(old, old_base, new, new_base, path)
        elif old.is_combined:
            self._combined(old, old_base, new, new_base, path)
        elif old.kind != new.kind:
            if {old.kind, new.kind} == {"number", "integer"}:
                if new.kind == "integer":
                    self._tell("TYPE_NARROWED", path)
                self._number(old.schema, new.schema, path)
            else:
                self._tell("TYPE_CHANGED", path)
        else:
            self._same_kind(old, old_base, new, new_base, path)

    def _same_kind(self, old: View, old_base: str, new: View, new_base: str, path: str) -> None:
        if new.kind == "string":
            self._string(old.schema, new.schema, path)
        elif new.kind in ("number", "integer"):
            self._number(old.schema, new.schema, path)
        elif new.kind == "enum":
            self._enum(old.schema["enum"], new.schema["enum"], path)
        elif new.kind == "not":
            # What is not accepted by the other way round.
            if not self._accepts_reversed(new.schema["not"], new_base, old.schema["not"], old_base):
                self._tell("NOT_TYPE_EXTENDED", path)
        elif new.kind == "object":
            self._object(old.schema, old_base, new.schema, new_base, path)
        elif new.kind == "array":
            self._array(old.schema, old_base, new.schema, new_base, path)

    # Combinations

    def _accepts(self, old: Any, old_base: str, new: Any, new_base: str) -> bool:
        """Whether there is no difference; those that are found are not reported."""
        found, begun = self.found, len(self._trail)
        self.found = []
        try:
            self.compare(old, old_base, new, new_base, "#")
            is_accepted = not self.found
        finally:
            self.found = found
        if not is_accepted:
            # Pairs that passed meanwhile may have passed only because an outer one was still being compared.
            for pair in self._trail[begun:]:
                if self._compared.get(pair):
                    del self._compared[pair]
        return is_accepted

    def _accepts_reversed(self, old: Any, old_base: str, new: Any, new_base: str) -> bool:
        other = _Comparison(self._writer, self._reader, is_reader_new=True)
        other._steps = self._steps
        other.compare(old, old_base, new, new_base, "#")
        self._steps = other._steps
        return not other.found

    def _from_combined(self, old: View, old_base: str, new: View, new_base: str, path: str) -> None:
        accepted = (self._accepts(part, old_base, new.schema, new_base) for part in old.parts)
        # A value written with an allOf is valid for all its parts, with an anyOf or oneOf perhaps for only one.
        if not (any(accepted) if old.kind == "allOf" else all(accepted)):
            self._tell("TYPE_CHANGED", path)

    def _combined(self, old: View, old_base: str, new: View, new_base: str, path: str) -> None:
        is_single = len(old.parts) == 1
        if old.kind != new.kind and not (
            new.kind == "anyOf" or (is_single and (new.kind == "oneOf" or len(new.parts) == 1))
        ):
            self._tell("COMBINED_TYPE_CHANGED", path)
            return
        old_parts, new_parts = _distinct(old.parts), _distinct(new.parts)
        if new.kind == "allOf":
            if len(old_parts) < len(new_parts):
                self._tell("PRODUCT_TYPE_EXTENDED", path)
        elif len(old_parts) > len(new_parts):
            self._tell("SUM_TYPE_NARROWED", path)
        old_rest, new_rest = _without_equal(old_parts, new_parts)
        edges = [
            [number for number, part in enumerate(new_rest) if self._accepts(old_part, old_base, part, new_base)]
            for old_part in old_rest
        ]
        if _matched(edges) < min(len(old_rest), len(new_rest)):
            self._tell("COMBINED_TYPE_SUBSCHEMAS_CHANGED", path)

    # Keywords

    def _enum(self, old: Sequence[Any], new: Sequence[Any], path: str) -> None:
        before, after = {dumps(value) for value in old}, {dumps(value) for value in new}
        if not before <= after:
            self._tell("ENUM_ARRAY_NARROWED" if after < before else "ENUM_ARRAY_CHANGED", f"{path}/enum")

    def _string(self, old: Mapping[str, Any], new: Mapping[str, Any], path: str) -> None:
        self._limits(old, new, path)
        pattern = new.get("pattern")
        if pattern is not None and pattern != old.get("pattern"):
            self._tell("PATTERN_CHANGED" if "pattern" in old else "PATTERN_ADDED", f"{path}/pattern")

    def _number(self, old: Mapping[str, Any], new: Mapping[str, Any], path: str) -> None:
        self._limits(old, new, path)
        divisor, before = new.get("multipleOf"), old.get("multipleOf")
        if divisor is None or divisor == before:
            return
        if before is None:
            self._tell("MULTIPLE_OF_ADDED", f"{path}/multipleOf")
        elif before % divisor != 0:
            name = "MULTIPLE_OF_EXPANDED" if divisor % before == 0 else "MULTIPLE_OF_CHANGED"
            self._tell(name, f"{path}/multipleOf")

    def _limits(self, old: Mapping[str, Any], new: Mapping[str, Any], path: str) -> None:
        for names, is_upper in ((_UPPER | _UPPER_NUMBER, True), (_LOWER | _LOWER_NUMBER, False)):
            for keyword, name in names.items():
                before, after = old.get(keyword), new.get(keyword)
                if after is None or after is False or after == before:
                    continue
                where = f"{path}/{keyword}"
                if before is None or isinstance(before, bool) or isinstance(after, bool):
                    self._tell(f"{name}_ADDED", where)
                elif is_upper and after < before:
                    self._tell(f"{name}_DECREASED", where)
                elif not is_upper and after > before:
                    self._tell(f"{name}_INCREASED", where)

    def _object(self, old: Mapping[str, Any], old_base: str, new: Mapping[str, Any], new_base: str, path: str) -> None:
        before, after = _mapping(old, "properties"), _mapping(new, "properties")
        compare = partial(self._between, old_base, new_base)
        required = set(_list(new, "required"))
        for name in after:
            is_new = name in required and name not in _list(old, "required")
            if is_new and name in before and not _has_default(after[name]):
                self._tell("REQUIRED_ATTRIBUTE_ADDED", f"{path}/required/{name}")
        for name in [*before, *(name for name in after if name not in before)]:
            where = f"{path}/properties/{name}"
            if name not in after:
                self._removed_property(name, before[name], new, where, compare)
            elif name not in before:
                self._added_property(name, old, after[name], where, compare, is_required=name in required)
            else:
                compare(before[name], after[name], where)
        self._dependencies(old, new, f"{path}/dependencies", compare)
        self._rest(old, new, "additionalProperties", "ADDITIONAL_PROPERTIES", path, compare)
        self._limits(old, new, path)

    def _between(self, old_base: str, new_base: str, old: Any, new: Any, path: str) -> None:
        self.compare(old, old_base, new, new_base, path)

    def _is_accepted(self, compare: Callable[[Any, Any, str], None], old: Any, new: Any, path: str) -> bool:
        before = len(self.found)
        compare(old, new, path)
        return len(self.found) == before

    def _removed_property(
        self, name: str, old: Any, new: Mapping[str, Any], path: str, compare: Callable[[Any, Any, str], None]
    ) -> None:
        if _is_open(new):
            return
        covering = _covering(new, name)
        if covering is not None:
            if not self._is_accepted(compare, old, covering, path):
                self._tell("PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", path)
        elif old is not False:
            self._tell("PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL", path)

    def _added_property(
        self,
        name: str,
        old: Mapping[str, Any],
        new: Any,
        path: str,
        compare: Callable[[Any, Any, str], None],
        *,
        is_required: bool,
    ) -> None:
        if _is_open(old):
            if view(new).kind != "any":
                self._tell("PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL", path)
            elif is_required:
                self._tell("REQUIRED_ATTRIBUTE_ADDED", path)
            return
        covering = _covering(old, name)
        if covering is not None and not self._is_accepted(compare, covering, new, path):
            self._tell("PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", path)
        if is_required and not _has_default(new):
            self._tell("REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL", path)

    def _dependencies(
        self, old: Mapping[str, Any], new: Mapping[str, Any], path: str, compare: Callable[[Any, Any, str], None]
    ) -> None:
        before, after = _dependencies_of(old), _dependencies_of(new)
        for name, wanted in after.items():
            known, where = before.get(name), f"{path}/{name}"
            if isinstance(wanted, list):
                if not isinstance(known, list):
                    self._tell("DEPENDENCY_ARRAY_ADDED", where)
                elif not set(wanted) <= set(known):
                    is_extended = set(known) < set(wanted)
                    self._tell("DEPENDENCY_ARRAY_EXTENDED" if is_extended else "DEPENDENCY_ARRAY_CHANGED", where)
            elif known is None or isinstance(known, list):
                self._tell("DEPENDENCY_SCHEMA_ADDED", where)
            else:
                compare(known, wanted, where)

    def _rest(
        self,
        old: Mapping[str, Any],
        new: Mapping[str, Any],
        keyword: str,
        name: str,
        path: str,
        compare: Callable[[Any, Any, str], None],
    ) -> None:
        """The schema of properties or items that are not named."""
        before, after = old.get(keyword, True), new.get(keyword, True)
        where = f"{path}/{keyword}"
        if after is False and before is not False:
            self._tell(f"{name}_REMOVED", where)
        elif after is not True and before is True:
            if view(after).kind != "any":
                self._tell(f"{name}_NARROWED", where)
        elif before is not False:
            compare(before, after, where)

    def _array(self, old: Mapping[str, Any], old_base: str, new: Mapping[str, Any], new_base: str, path: str) -> None:
        compare = partial(self._between, old_base, new_base)
        self._limits(old, new, path)
        if new.get("uniqueItems") is True and old.get("uniqueItems") is not True:
            self._tell("UNIQUE_ITEMS_ADDED", f"{path}/uniqueItems")
        before, rest_before = _items(old)
        after, rest_after = _items(new)
        for number in range(max(len(before), len(after))):
            where = f"{path}/items/{number}"
            if number >= len(after):
                self._removed_item(before[number], rest_after, where, compare)
            elif number >= len(before):
                self._added_item(rest_before, after[number], where, compare)
            else:
                compare(before[number], after[number], where)
        keyword = "additionalItems" if before or after else "items"
        self._rest({keyword: rest_before}, {keyword: rest_after}, keyword, "ADDITIONAL_ITEMS", path, compare)

    def _removed_item(self, old: Any, rest: Any, path: str, compare: Callable[[Any, Any, str], None]) -> None:
        if rest is True:
            return
        if rest is not False:
            if not self._is_accepted(compare, old, rest, path):
                self._tell("ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", path)
        elif old is not False:
            self._tell("ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL", path)

    def _added_item(self, rest: Any, new: Any, path: str, compare: Callable[[Any, Any, str], None]) -> None:
        if rest is True:
            if view(new).kind != "any":
                self._tell("ITEM_ADDED_TO_OPEN_CONTENT_MODEL", path)
        elif rest is not False and not self._is_accepted(compare, rest, new, path):
            self._tell("ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", path)

    def _tell(self, name: str, path: str) -> None:
        if len(self.found) < MAX_MESSAGES:
            self.found.append(message(name, path, *self._names))


def _resolved(schema: JsonSchema, found: Any, base: str) -> tuple[Any, str]:
    """The schema at the end of `$ref`s, and the document that it is in."""
    for _ in range(_MAX_RESOLVED):
        if not isinstance(found, dict) or not isinstance(found.get("$ref"), str):
            return found, base
        target = schema.resolve(found["$ref"], base)
        if target is None:
            # Its meaning is unknown: it is equal to itself only.
            return {"const": {"$ref": found["$ref"]}}, base
        found, base = target
    raise invalid_schema("A reference in the schema leads to itself")


def _mapping(schema: Mapping[str, Any], keyword: str) -> dict[str, Any]:
    found = schema.get(keyword)
    return found if isinstance(found, dict) else {}


def _list(schema: Mapping[str, Any], keyword: str) -> list[Any]:
    found = schema.get(keyword)
    return found if isinstance(found, list) else []


def _has_default(schema: Any) -> bool:
    return isinstance(schema, dict) and "default" in schema


def _is_open(schema: Mapping[str, Any]) -> bool:
    return not _mapping(schema, "patternProperties") and schema.get("additionalProperties", True) in (True, {})


def _covering(schema: Mapping[str, Any], name: str) -> Any:
    """The schema that counts for a property that is not named; None if there is none."""
    for pattern, covering in _mapping(schema, "patternProperties").items():
        if _matches(pattern, name):
            return covering
    rest = schema.get("additionalProperties", True)
    return None if isinstance(rest, bool) else rest


def _matches(pattern: str, name: str) -> bool:
    """By RE2, whose time is bounded; a pattern that it does not know matches nothing."""
    import re2  # type: ignore[import-untyped]

    try:
        return re2.search(pattern, name) is not None
    except (re2.error, re.error, ValueError):
        return False


def _dependencies_of(schema: Mapping[str, Any]) -> dict[str, Any]:
    return (
        _mapping(schema, "dependencies") | _mapping(schema, "dependentRequired") | _mapping(schema, "dependentSchemas")
    )


def _items(schema: Mapping[str, Any]) -> tuple[list[Any], Any]:
    """The schemas of the first items, and the one of the rest."""
    if isinstance(schema.get("prefixItems"), list):
        return schema["prefixItems"], schema.get("items", True)
    items = schema.get("items", True)
    if isinstance(items, list):
        return items, schema.get("additionalItems", True)
    return [], items


def _distinct(parts: Sequence[Any]) -> list[Any]:
    return list({dumps(part, sort_keys=True): part for part in parts}.values())


def _without_equal(old: Sequence[Any], new: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Those that are not written the same in both, so that of thousands only the others are compared."""
    before = {dumps(part, sort_keys=True) for part in old}
    equal = {text for part in new if (text := dumps(part, sort_keys=True)) in before and '"$ref"' not in text}
    return tuple([part for part in parts if dumps(part, sort_keys=True) not in equal] for parts in (old, new))  # type: ignore[return-value]


def _matched(edges: Sequence[Sequence[int]]) -> int:
    """How many can have a partner of their own (a maximum matching, by augmenting paths)."""
    partner: dict[int, int] = {}

    def place(one: int, tried: set[int]) -> bool:
        for other in edges[one]:
            if other not in tried:
                tried.add(other)
                if other not in partner or place(partner[other], tried):
                    partner[other] = one
                    return True
        return False

    return sum(place(one, set()) for one in range(len(edges)))
