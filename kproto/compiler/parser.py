"""Generates the parse function of a message in one version."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.kproto.compiler.layout import (
    FEW,
    FORMATS,
    MAX_ARRAY_LENGTH,
    MAX_STRING_SIZE,
    NULL_STRUCT,
    STEP_ELEMENTS,
    carries_records,
    is_flexible,
    minimum_size,
    size_of,
    unpackers,
)
from ottla.kproto.compiler.source import Source
from ottla.kproto.schema import FRESH, ZERO_UUID, Primitive, StructType
from ottla.kproto.text import ERRORS

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from ottla.kproto.schema import Field


def compile_parser(
    cls: StructType, version: int, *, flexible: bool, in_steps: bool = False
) -> Callable[[bytes | memoryview, int], Any]:
    """The function `parse(buffer, position) -> (message, end position)`.

    The buffer must be `bytes`, or a `memoryview` where the version carries records. Beside DecodeError the function
    lets IndexError, struct.error and UnicodeDecodeError out, each of which means that the bytes are malformed.

    `in_steps` makes it a generator `parse(buffer, position, begun)`, which takes a `memoryview`, stops after each
    STEP_ELEMENTS elements of arrays and returns the same. It appends each list to `begun` before it fills it.
    """
    return _ParserCompiler(cls, version, flexible, in_steps).compile()


class _Fixed(NamedTuple):
    """A field of fixed size that waits to be read together with its neighbours."""

    formats: str
    target: str
    then: str | None


class _ParserCompiler:
    def __init__(self, cls: StructType, version: int, flexible: bool, in_steps: bool) -> None:
        self._cls = cls
        self._version = version
        self._flexible = flexible
        self._in_steps = in_steps
        self._views = in_steps or carries_records(cls, version)
        self._run: list[_Fixed] = []
        self._source = Source("parse(buf, p, begun)" if in_steps else "parse(buf, p)")

    def compile(self) -> Callable[..., Any]:
        self._source.line("size = len(buf)")
        if self._in_steps:
            self._source.line("elements = 0")
            self._source.line("if size < 0: yield")  # a generator even where the message has no arrays
        message = self._struct(self._cls)
        self._flush()
        self._source.line(f"return {message}, p")
        return self._source.compile(f"<parse {self._cls.__name__} v{self._version}>")

    def _struct(self, cls: StructType) -> str:
        """Emit the reading of one struct into a new local, whose name is returned."""
        target = self._source.local("o")
        self._source.line(f"{target} = new({self._source.constant('class', cls)})")
        tagged = []
        for field in cls.FIELDS:
            where = f"{target}.{field.name}"
            if not field.versions.includes(self._version):
                self._source.line(f"{where} = {self._default(field)}")
            elif field.is_tagged(self._version):
                self._source.line(f"{where} = {self._default(field)}")
                tagged.append(field)
            else:
                self._field(cls, field, where)
        if self._flexible:
            self._tags(cls, tagged, target)
        else:
            self._source.line(f"{target}.unknown_tagged_fields = ()")
        return target

    def _default(self, field: Field) -> str:
        if field.default is ZERO_UUID:
            return "ZERO_UUID"
        if field.default is not FRESH:
            return repr(field.default)
        return "[]" if field.kind == "array" else f"{self._source.constant('class', field.element)}()"

    def _field(self, cls: StructType, field: Field, target: str) -> None:
        what = f"{cls.__name__}.{field.name}"
        nullable = field.nullable.includes(self._version)
        flexible = is_flexible(field, self._version, self._flexible)
        if field.kind == "array":
            assert field.element is not None
            self._array(field.element, target, what, nullable)
        elif field.kind == "struct":
            assert isinstance(field.element, StructType)
            self._nested(field.element, target, nullable, NULL_STRUCT[field.is_tagged(self._version)])
        else:
            self._value(field.kind, target, what, nullable or field.kind == "records", flexible)

    def _value(self, kind: str, target: str, what: str, nullable: bool, flexible: bool) -> None:
        if kind in FORMATS:
            self._fixed(kind, target)
            return
        length = self._length("h" if kind == "string" else "i", flexible, what if kind == "string" else None)
        with self._null_check(length, target, what, nullable, flexible):
            end = self._source.local("e")
            self._source.line(f"{end} = p + {length}{' - 1' if flexible else ''}")
            self._source.line(f"if {end} > size: truncated({what!r})")
            self._source.line(f"{target} = {self._slice(kind, end)}")
            self._source.line(f"p = {end}")

    def _slice(self, kind: str, end: str) -> str:
        if kind == "records":
            return f"buf[p:{end}]"
        if kind == "bytes":
            return f"bytes(buf[p:{end}])" if self._views else f"buf[p:{end}]"
        if self._views:
            return f"str(buf[p:{end}], 'utf-8', {ERRORS!r})"
        return f"buf[p:{end}].decode('utf-8', {ERRORS!r})"

    def _fixed(self, kind: str, target: str) -> None:
        if kind == "uuid":
            raw = self._source.local("u")
            self._run.append(_Fixed("16s", raw, f"{target} = uuid_of({raw})"))
        else:
            self._run.append(_Fixed(FORMATS[kind], target, None))

    def _length(self, classic_format: str, flexible: bool, string: str | None = None) -> str:
        """Emit the reading of a length prefix, together with the fields before it; returns its local."""
        length = self._source.local("n")
        self._run.append(_Fixed("B" if flexible else classic_format, length, None))
        self._flush()
        if flexible:
            with self._source.block(f"if {length} > 127:"):
                self._source.line(f"{length}, p = rest_of_uvarint(buf, p, {length})")
                if string is not None:
                    self._source.line(f"if {length} > {MAX_STRING_SIZE + 1}: too_long({string!r})")
        return length

    def _null_check(
        self, length: str, target: str, what: str, nullable: bool, flexible: bool
    ) -> AbstractContextManager[None]:
        """Emit what null means, and open the block for what is not null."""
        is_null = f"{length} == 0" if flexible else f"{length} < 0"
        if nullable:
            self._source.line(f"if {is_null}: {target} = None")
            return self._source.block("else:")
        self._source.line(f"if {is_null}: null({what!r})")
        return nullcontext()

    def _array(self, element: Primitive | StructType, target: str, what: str, nullable: bool) -> None:
        count = self._length("i", self._flexible)
        with self._null_check(count, target, what, nullable, self._flexible):
            if self._flexible:
                self._source.line(f"{count} -= 1")
            smallest = minimum_size(element, self._version, self._flexible)
            self._source.line(f"if {count} * {smallest} > size - p: truncated({what!r})")
            self._source.line(f"if {count} > {MAX_ARRAY_LENGTH}: too_many({what!r}, {count}, {MAX_ARRAY_LENGTH})")
            if isinstance(element, Primitive) and element.name in FORMATS:
                self._fixed_array(element.name, count, target)
                return
            items = self._source.local("a")
            self._source.line(f"{target} = {items} = []")
            if self._in_steps:
                self._source.line(f"begun.append({items})")
            with self._source.block(f"for _ in range({count}):"):
                if isinstance(element, StructType):
                    item = self._struct(element)
                else:
                    item = self._source.local("v")
                    self._value(element.name, item, what, False, self._flexible)
                self._flush()
                self._source.line(f"{items}.append({item})")
                self._step()

    def _step(self) -> None:
        if self._in_steps:
            self._source.line("elements += 1")
            self._source.line(f"if not elements & {STEP_ELEMENTS - 1}: yield")

    def _fixed_array(self, kind: str, count: str, target: str) -> None:
        if self._in_steps:
            fmt = FORMATS[kind]
            self._source.line(f"{target} = yield from unpack_in_steps({fmt!r}, {size_of(fmt)}, buf, p, {count}, begun)")
        elif kind == "uuid":
            self._source.line(f"{target} = [uuid_of(bytes(buf[q:q + 16])) for q in range(p, p + {count} * 16, 16)]")
        else:
            many = f"unpack_from('>%d{FORMATS[kind]}' % {count}, buf, p)"
            few = self._source.constant(f"unpackers_{kind}", unpackers(FORMATS[kind]))
            self._source.line(f"{target} = list({few}[{count}](buf, p) if {count} < {FEW} else {many})")
        self._source.line(f"p += {count} * {size_of(FORMATS[kind])}")

    def _nested(self, element: StructType, target: str, nullable: bool, null: int) -> None:
        if not nullable:
            self._source.line(f"{target} = {self._struct(element)}")
            return
        flag = self._source.local("n")
        self._run.append(_Fixed("b", flag, None))
        self._flush()
        self._source.line(f"if {flag} <= {null}: {target} = None")
        with self._source.block("else:"):
            nested = self._struct(element)
            self._flush()
            self._source.line(f"{target} = {nested}")

    def _tags(self, cls: StructType, tagged: list[Field], target: str) -> None:
        count = self._source.local("t")
        self._run.append(_Fixed("B", count, None))
        self._flush()
        self._source.line(f"if not {count}: {target}.unknown_tagged_fields = ()")
        with self._source.block("else:"):
            if not tagged:
                read = "read_unknown_tags(buf, p, {count}, size)"
                if self._in_steps:
                    read = "(yield from read_tags_in_steps(buf, p, {count}, size, begun))"
                self._source.line(f"{target}.unknown_tagged_fields, p = {read.format(count=count)}")
                return
            self._known_tags(cls, tagged, target, count)

    def _known_tags(self, cls: StructType, tagged: list[Field], target: str, count: str) -> None:
        line = self._source.line
        unknown, last, tag, end = (self._source.local(prefix) for prefix in ("k", "l", "g", "e"))
        line(f"if {count} > 127: {count}, p = rest_of_tag_count(buf, p, {count})")
        line(f"{unknown} = []; {last} = -1")
        if self._in_steps:
            line(f"begun.append({unknown})")
        with self._source.block(f"for _ in range({count}):"):
            line(f"{tag}, p = read_uvarint(buf, p); {end}, p = read_uvarint(buf, p)")
            line(f"if {tag} <= {last}: misplaced_tag({tag})")
            line(f"{last} = {tag}; {end} += p")
            line(f"if {end} > size: truncated('a tagged field')")
            for index, field in enumerate(tagged):
                with self._source.block(f"{'el' if index else ''}if {tag} == {field.tag}:"):
                    self._field(cls, field, f"{target}.{field.name}")
                    self._flush()
                    line(f"if p != {end}: wrong_tag_size('{cls.__name__}.{field.name}')")
            with self._source.block("else:"):
                line(f"{unknown}.append(TaggedField({tag}, bytes(buf[p:{end}]))); p = {end}")
            self._step()
        line(f"{target}.unknown_tagged_fields = tuple({unknown})")

    def _flush(self) -> None:
        """Emit one read for all the fixed fields that wait."""
        run, self._run = self._run, []
        if not run:
            return
        formats = "".join(item.formats for item in run)
        if formats == "B":
            self._source.line(f"{run[0].target} = buf[p]")
        elif formats == "?":
            self._source.line(f"{run[0].target} = buf[p] != 0")
        else:
            targets = ", ".join(item.target for item in run)
            comma = "," if len(run) == 1 else ""
            self._source.line(f"{targets}{comma} = {self._source.unpacker(formats)}(buf, p)")
        self._source.line(f"p += {size_of(formats)}")
        for item in run:
            if item.then is not None:
                self._source.line(item.then)
