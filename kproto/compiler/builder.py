"""Generates the build function of a message in one version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.kproto.compiler.layout import FEW, FORMATS, NULL_STRUCT, STEP_ELEMENTS, is_flexible, packers
from ottla.kproto.compiler.source import Source
from ottla.kproto.schema import FRESH, ZERO_UUID, Primitive, StructType

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.kproto.schema import Field
    from ottla.kproto.types import Buffer


def compile_builder(
    cls: StructType, version: int, *, flexible: bool, in_steps: bool = False
) -> Callable[[Any, Callable[[Buffer], object]], Any]:
    """The function `build(message, write)`, which hands the encoded pieces to `write` in order.

    Record batches are handed over as they are, so that the caller may send them without a copy. Beside EncodeError the
    function lets through what Python raises for a value of a wrong type or range (struct.error, TypeError,
    AttributeError, ValueError).

    `in_steps` makes it a generator, which stops after each STEP_ELEMENTS elements of arrays.
    """
    return _BuilderCompiler(cls, version, flexible, in_steps).compile()


class _BuilderCompiler:
    def __init__(self, cls: StructType, version: int, flexible: bool, in_steps: bool) -> None:
        self._cls = cls
        self._version = version
        self._flexible = flexible
        self._in_steps = in_steps
        self._formats = ""
        self._values: list[str] = []
        self._write = "w"
        self._source = Source("build(message, w)")

    def compile(self) -> Callable[..., None]:
        if self._in_steps:
            self._source.line("elements = 0")
            self._source.line("if elements: yield")  # a generator even where the message has no arrays
        self._struct(self._cls, "message")
        self._flush()
        return self._source.compile(f"<build {self._cls.__name__} v{self._version}>")

    def _struct(self, cls: StructType, source: str) -> None:
        """Emit the writing of the struct that the local `source` refers to."""
        tagged = []
        for field in cls.FIELDS:
            where = f"{source}.{field.name}"
            if not field.versions.includes(self._version):
                if not field.ignorable:
                    differs = self._differs_from_default(field, where)
                    self._source.line(f"if {differs}: not_in_version('{cls.__name__}.{field.name}')")
            elif field.is_tagged(self._version):
                tagged.append(field)
            else:
                self._field(field, where)
        if self._flexible:
            self._tags(tagged, source)
        else:
            self._source.line(f"if {source}.unknown_tagged_fields: tags_not_in_version('{cls.__name__}')")

    def _differs_from_default(self, field: Field, where: str) -> str:
        if field.default is None:
            return f"{where} is not None"
        if field.default is ZERO_UUID:
            return f"({where} is not ZERO_UUID and {where} != ZERO_UUID)"
        if field.kind == "struct":
            assert isinstance(field.element, StructType)
            nested = [self._differs_from_default(f, f"{where}.{f.name}") for f in field.element.FIELDS]
            is_null = [f"{where} is None"] if field.nullable.includes(self._version) else []
            return f"({' or '.join([*is_null, *nested, f'{where}.unknown_tagged_fields'])})"
        if field.default is FRESH or field.kind == "bytes":
            empty_or_null = f"{where} is None or " if field.nullable.lowest <= field.nullable.highest else ""
            return f"({empty_or_null}len({where}) > 0)"
        return f"{where} != {field.default!r}"

    def _field(self, field: Field, where: str) -> None:
        nullable = field.nullable.includes(self._version)
        if field.kind == "array":
            assert field.element is not None
            self._array(field.element, where, nullable)
        elif field.kind == "struct":
            assert isinstance(field.element, StructType)
            self._nested(field.element, where, nullable, NULL_STRUCT[field.is_tagged(self._version)])
        else:
            flexible = is_flexible(field, self._version, self._flexible)
            self._value(field.kind, where, nullable or field.kind == "records", flexible)

    def _value(self, kind: str, where: str, nullable: bool, flexible: bool) -> None:
        if kind == "uuid":
            self._fixed("16s", f"{where}.bytes")
        elif kind in FORMATS:
            self._fixed(FORMATS[kind], where)
        else:
            data, length = self._source.local("s"), self._source.local("n")
            self._source.line(f"{data} = {where}")
            encode = f"{data} = {data}.encode(); " if kind == "string" else ""
            measure = f"{encode}{length} = len({data}){' + 1' if flexible else ''}"
            if nullable:
                self._source.line(f"if {data} is None: {data} = b''; {length} = {0 if flexible else -1}")
                self._source.line(f"else: {measure}")
            else:
                self._source.line(measure)
            if kind == "string":
                self._prefix(length, "h", flexible, "string_length")
            else:
                self._prefix(length, "i", flexible, "uvarint")
            self._source.line(f"{self._write}({data})")

    def _fixed(self, formats: str, value: str) -> None:
        self._formats += formats
        self._values.append(value)

    def _prefix(self, length: str, classic_format: str, flexible: bool, long_form: str) -> None:
        """Emit a length prefix together with the fixed fields that wait before it."""
        if not flexible:
            self._fixed(classic_format, length)
            self._flush()
        elif not self._formats:
            self._source.line(f"{self._write}(ONE_BYTE[{length}] if {length} < 128 else {long_form}({length}))")
        else:
            before = self._take()
            short = self._packed(before[0] + "B", [*before[1], length])
            self._source.line(
                f"{self._write}({short} if {length} < 128 else {self._packed(*before)} + {long_form}({length}))"
            )

    def _array(self, element: Primitive | StructType, where: str, nullable: bool) -> None:
        items, count = self._source.local("a"), self._source.local("n")
        self._source.line(f"{items} = {where}")
        length = f"len({items}){' + 1' if self._flexible else ''}"
        if nullable:
            length = f"{0 if self._flexible else -1} if {items} is None else {length}"
        self._source.line(f"{count} = {length}")
        self._prefix(count, "i", self._flexible, "uvarint")
        if isinstance(element, Primitive) and element.name in FORMATS and element.name != "uuid":
            formats = FORMATS[element.name]
            if self._in_steps:
                self._source.line(f"if {items}: yield from pack_in_steps({formats!r}, {items}, {self._write})")
                return
            few = self._source.constant(f"packers_{element.name}", packers(formats))
            number = f"len({items})"
            many = f"pack('>%d{formats}' % {number}, *{items})"
            self._source.line(f"if {items}: {self._write}({few}[{number}](*{items}) if {number} < {FEW} else {many})")
            return
        item = self._source.local("v")
        with self._source.block(f"for {item} in {items} or ():" if nullable else f"for {item} in {items}:"):
            if isinstance(element, StructType):
                self._struct(element, item)
            else:
                self._value(element.name, item, False, self._flexible)
            self._flush()
            if self._in_steps:
                self._source.line("elements += 1")
                self._source.line(f"if not elements & {STEP_ELEMENTS - 1}: yield")

    def _nested(self, element: StructType, where: str, nullable: bool, null: int) -> None:
        nested = self._source.local("o")
        self._source.line(f"{nested} = {where}")
        if not nullable:
            self._struct(element, nested)
            return
        self._fixed("b", f"({null} if {nested} is None else 1)")
        self._flush()
        with self._source.block(f"if {nested} is not None:"):
            self._struct(element, nested)
            self._flush()

    def _tags(self, tagged: list[Field], source: str) -> None:
        """Emit the tagged fields: a zero byte in the common case that all have their defaults."""
        unknown = self._source.local("k")
        self._source.line(f"{unknown} = {source}.unknown_tagged_fields")
        before = self._take()
        known = "()"
        if tagged:
            known = self._source.local("t")
            self._source.line(f"{known} = None")
            for field in tagged:
                self._known_tag(field, f"{source}.{field.name}", known)
        plain = self._packed(before[0] + "x", before[1])
        tags = self._source.constant("tags", frozenset(field.tag for field in tagged))
        section = f"tag_section({known + ' or ()' if tagged else '()'}, {unknown}, {tags})"
        if before[0]:
            section = f"{self._packed(*before)} + {section}"
        condition = f"{known} or {unknown}" if tagged else unknown
        self._source.line(f"{self._write}({section} if {condition} else {plain})")

    def _known_tag(self, field: Field, where: str, known: str) -> None:
        pieces, write = self._source.local("b"), self._write
        with self._source.block(f"if {self._differs_from_default(field, where)}:"):
            self._write = self._source.local("w")
            self._source.line(f"{pieces} = []; {self._write} = {pieces}.append")
            self._field(field, where)
            self._flush()
            self._source.line(f"{known} = [*({known} or ()), ({field.tag}, b''.join({pieces}))]")
            self._write = write

    def _take(self) -> tuple[str, list[str]]:
        taken = self._formats, self._values
        self._formats, self._values = "", []
        return taken

    def _packed(self, formats: str, values: list[str]) -> str:
        if formats == "x":
            return "ONE_BYTE[0]"
        return f"{self._source.packer(formats)}({', '.join(values)})"

    def _flush(self) -> None:
        """Emit one write for all the fixed fields that wait."""
        if self._formats:
            self._source.line(f"{self._write}({self._packed(*self._take())})")
