"""Avro: Apache's rules (`org.apache.avro.SchemaCompatibility`, Avro 1.12), with the sentences of Confluent's registry.

As with Apache, named types match by their name without the namespace, and aliases count for fields only.
"""

from __future__ import annotations

from typing import Final

from ottla.registry.errors import invalid_schema
from ottla.registry.formats.avro import AvroSchema
from ottla.registry.formats.avro_types import Field, Type
from ottla.registry.limits import MAX_COMPARISONS, MAX_MESSAGES

_PROMOTED: Final = {
    "long": frozenset({"int"}),
    "float": frozenset({"int", "long"}),
    "double": frozenset({"int", "long", "float"}),
    "bytes": frozenset({"string"}),
    "string": frozenset({"bytes"}),
}


def messages(reader: AvroSchema, writer: AvroSchema, *, is_reader_new: bool) -> list[str]:
    """Why `reader` cannot read what `writer` wrote; empty if it can."""
    comparison = _Comparison(is_reader_new)
    comparison.compare(reader.root, writer.root, "")
    return comparison.found


class _Comparison:
    def __init__(self, is_reader_new: bool) -> None:
        self.found: list[str] = []
        self._reader, self._writer = ("new", "old") if is_reader_new else ("old", "new")
        self._steps = 0
        #: Named types that have been compared, or are being compared, without a difference so far.
        self._passed: dict[tuple[int, int], bool] = {}
        self._trail: list[tuple[int, int]] = []
        self._by_label: dict[int, dict[str, Type]] = {}

    def compare(self, reader: Type, writer: Type, path: str) -> bool:
        """Whether they are compatible; differences are added to `found`."""
        self._steps += 1
        if self._steps > MAX_COMPARISONS:
            raise invalid_schema("The schemas are too large to be compared: their unions have too many combinations")
        if reader.name is None or writer.name is None:
            return self._compare(reader, writer, path)
        pair = id(reader), id(writer)
        if pair not in self._passed:
            self._passed[pair] = True
            self._trail.append(pair)
            self._passed[pair] = self._compare(reader, writer, path)
        return self._passed[pair]

    def _compare(self, reader: Type, writer: Type, path: str) -> bool:
        if writer.kind == "union":
            return self._writer_union(reader, writer, path)
        if reader.kind == "union":
            if self._has_match(reader, writer):
                return True
            return self._differ(
                "MISSING_UNION_BRANCH",
                f"the union at '{path or '/'}' of the {self._reader} schema has no branch for what the "
                f"{self._writer} one has there",
                writer.kind.upper(),
            )
        if reader.is_record and writer.is_record:
            return self._records(reader, writer, path)
        if reader.kind != writer.kind:
            if writer.kind in _PROMOTED.get(reader.kind, ()):
                return True
            return self._differ(
                "TYPE_MISMATCH",
                f"what the {self._writer} schema has at '{path or '/'}' cannot be read as the {self._reader} one says",
                f"{writer.kind.upper()} as {reader.kind.upper()}",
            )
        if reader.inner is not None and writer.inner is not None:
            return self.compare(reader.inner, writer.inner, f"{path}/{'items' if reader.kind == 'array' else 'values'}")
        if reader.kind == "enum":
            return self._enums(reader, writer, path)
        if reader.kind == "fixed":
            return self._fixed(reader, writer, path)
        return True

    def _has_match(self, union: Type, writer: Type) -> bool:
        """Whether a branch of the reader's union reads what the writer wrote; that of the same name is tried first."""
        by_label = self._by_label.get(id(union))
        if by_label is None:
            by_label = self._by_label[id(union)] = {branch.label: branch for branch in union.branches}
        likely = by_label.get(writer.label)
        if likely is not None and self._matches(likely, writer):
            return True
        return any(self._matches(branch, writer) for branch in union.branches if branch is not likely)

    def _matches(self, reader: Type, writer: Type) -> bool:
        """The same as `compare`, without the reasons."""
        found, begun = self.found, len(self._trail)
        self.found = []
        try:
            is_match = self.compare(reader, writer, "")
        finally:
            self.found = found
        if not is_match:
            # Types that passed meanwhile may have passed only because an outer one was still being compared.
            for pair in self._trail[begun:]:
                if self._passed.get(pair):
                    del self._passed[pair]
        return is_match

    def _writer_union(self, reader: Type, writer: Type, path: str) -> bool:
        is_same = True
        for index, branch in enumerate(writer.branches):
            if reader.kind != "union":
                is_same &= self.compare(reader, branch, path)
            elif not self._has_match(reader, branch):
                is_same = self._differ(
                    "MISSING_UNION_BRANCH",
                    f"the union at '{path}' of the {self._reader} schema has no branch for branch {index} of the "
                    f"{self._writer} one",
                    branch.kind.upper(),
                )
        return is_same

    def _names(self, reader: Type, writer: Type, path: str) -> bool:
        if reader.simple_name == writer.simple_name:
            return True
        return self._differ(
            "NAME_MISMATCH", f"the two schemas have other names at '{path}/name'", f"{reader.name} for {writer.name}"
        )

    def _records(self, reader: Type, writer: Type, path: str) -> bool:
        is_same = self._names(reader, writer, path)
        written = {field.name: field for field in writer.fields}
        for index, field in enumerate(reader.fields):
            where = f"{path}/fields/{index}"
            other = _writer_field(field, written)
            if other is not None:
                is_same &= self.compare(field.type, other.type, f"{where}/type")
            elif not field.has_default:
                is_same = self._differ(
                    "READER_FIELD_MISSING_DEFAULT_VALUE",
                    f"the {self._reader} schema has a field '{field.name}' at '{where}' without a default, and the "
                    f"{self._writer} one does not have it",
                    field.name,
                )
        return is_same

    def _enums(self, reader: Type, writer: Type, path: str) -> bool:
        is_same = self._names(reader, writer, path)
        known = set(reader.symbols)
        missing = [symbol for symbol in writer.symbols if symbol not in known]
        if not missing or reader.default is not None:
            return is_same
        shown = f"[{', '.join(missing)}]"
        return self._differ(
            "MISSING_ENUM_SYMBOLS",
            f"the enum at '{path}/symbols' of the {self._reader} schema lacks symbols of the {self._writer} one",
            shown,
        )

    def _fixed(self, reader: Type, writer: Type, path: str) -> bool:
        is_same = self._names(reader, writer, path)
        if reader.size == writer.size:
            return is_same
        return self._differ(
            "FIXED_SIZE_MISMATCH",
            f"the {self._reader} and the {self._writer} schema have other sizes at '{path}/size'",
            f"{reader.size} for {writer.size}",
        )

    def _differ(self, error_type: str, description: str, info: str) -> bool:
        if len(self.found) < MAX_MESSAGES:
            self.found.append(f"{{errorType:'{error_type}', description:'{description}', additionalInfo:'{info}'}}")
        return False


def _writer_field(field: Field, written: dict[str, Field]) -> Field | None:
    """The writer's field that becomes this one of the reader, by name or by an alias."""
    if field.name in written:
        return written[field.name]
    return next((written[alias] for alias in field.aliases if alias in written), None)
