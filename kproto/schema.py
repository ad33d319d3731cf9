"""How a versioned Kafka message is declared.

One class describes a struct in all its versions; every field says in which versions it exists, may be null, or
is tagged (KIP-482), and what it holds when it is absent::

    class EpochEndOffset(Struct):
        epoch: int = int32("12+", default=-1)
        end_offset: int = int64("12+", default=-1)

    class FetchRequest(Request, api_key=ApiKey.FETCH, versions="4-18", flexible="12+"):
        cluster_id: str | None = string("12+", nullable="12+", tag=0, tagged="12+", default=None, ignorable=True)
        max_wait_ms: int = int32("0+")
        topics: list[FetchTopic] = array(FetchTopic, "0+")

The declaration is the single source of two codecs: `ottla.kproto.reference` interprets it as a tree of `construct`
types, and `ottla.kproto.codec` compiles it to straight-line Python. Instances are slotted, compare by value, and
their constructor takes every field as an optional keyword with Kafka's default.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, dataclass_transform
from uuid import UUID

from ottla.kproto.versions import NO_VERSIONS, VersionRange

if TYPE_CHECKING:
    from ottla.kproto.api_keys import ApiKey

ZERO_UUID: Final = UUID(int=0)
"""Kafka's "no id": the default of every uuid field."""


class TaggedField(NamedTuple):
    """A tagged field that this version of the schema does not know, kept as it came."""

    tag: int
    data: bytes


class _Fresh:
    """Marks a default that every instance gets its own copy of (an empty list, a struct)."""

    def __repr__(self) -> str:
        return "<fresh>"


FRESH: Final = _Fresh()


class Field:
    """One field of a struct: its type and, by version, its presence, nullability, tag and default."""

    __slots__ = (
        "default", "element", "flexible", "ignorable", "kind", "name", "nullable", "tag", "tagged", "versions",
    )  # fmt: skip

    def __init__(
        self,
        kind: str,
        versions: str,
        *,
        element: Primitive | StructType | None = None,
        nullable: str = "none",
        default: object = FRESH,
        ignorable: bool = False,
        tag: int | None = None,
        tagged: str = "none",
        flexible: str | None = None,
    ) -> None:
        self.name = ""
        self.kind = kind
        self.element = element
        self.versions = VersionRange.parse(versions)
        self.nullable = VersionRange.parse(nullable)
        self.default = default
        self.ignorable = ignorable
        self.tag = tag
        self.tagged = VersionRange.parse(tagged)
        self.flexible = None if flexible is None else VersionRange.parse(flexible)

    def is_tagged(self, version: int) -> bool:
        return self.tag is not None and self.tagged.includes(version)

    def fresh_default(self) -> Any:
        """The value of the field where it is absent; a new object where that is mutable."""
        if self.default is not FRESH:
            return self.default
        if self.kind == "array":
            return []
        assert isinstance(self.element, StructType)
        return self.element()

    def __repr__(self) -> str:
        return f"<Field {self.name}: {self.kind} {self.versions}>"


class Primitive:
    """A primitive type of the protocol. Calling it declares a field of that type."""

    __slots__ = ("default", "name")

    def __init__(self, name: str, default: object) -> None:
        self.name = name
        self.default = default

    def __call__(self, versions: str, **options: Any) -> Any:
        """Declare a field; the options are those of `Field`."""
        options.setdefault("default", self.default)
        return Field(self.name, versions, **options)

    def __repr__(self) -> str:
        return self.name


boolean = Primitive("bool", False)
int8 = Primitive("int8", 0)
int16 = Primitive("int16", 0)
uint16 = Primitive("uint16", 0)
int32 = Primitive("int32", 0)
uint32 = Primitive("uint32", 0)
int64 = Primitive("int64", 0)
float64 = Primitive("float64", 0.0)
uuid = Primitive("uuid", ZERO_UUID)
string = Primitive("string", "")
bytes_ = Primitive("bytes", b"")
record_data = Primitive("records", None)
"""Record batches: parsed to a view of the input, never copied."""


def array(element: Primitive | StructType, versions: str, **options: Any) -> Any:
    """Declare a list of primitives or structs; its default is a new empty list unless it is given."""
    return Field("array", versions, element=element, **options)


def struct(element: StructType, versions: str, **options: Any) -> Any:
    """Declare a nested struct; its default is a new struct of defaults unless it is given."""
    return Field("struct", versions, element=element, **options)


@dataclass_transform(kw_only_default=True)
class StructType(type):
    """The metaclass of structs: turns declared fields into slots and a constructor."""

    FIELDS: tuple[Field, ...]
    OFFICIAL_NAME: str

    def __new__(
        mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **kwargs: Any
    ) -> StructType:  # fmt: skip
        fields = tuple(value for value in namespace.values() if isinstance(value, Field))
        for field_name, value in list(namespace.items()):
            if isinstance(value, Field):
                value.name = field_name
                del namespace[field_name]
        if bases:
            namespace["__slots__"] = tuple(field.name for field in fields)
            namespace["FIELDS"] = fields
        cls = super().__new__(mcs, name, bases, namespace, **kwargs)
        if fields:
            cls.__init__ = _make_init(fields, cls)  # type: ignore[misc]
        return cls


def _make_init(fields: tuple[Field, ...], cls: StructType) -> Any:
    """Compile the constructor: plain assignments, no loop over the fields."""
    scope: dict[str, Any] = {"FRESH": FRESH, "ZERO_UUID": ZERO_UUID}
    parameters = []
    body = []
    for field in fields:
        name = field.name
        if field.default is FRESH:
            scope[f"new_{name}"] = field.element if field.kind == "struct" else list
            parameters.append(f"{name}=FRESH")
            body.append(f"self.{name} = new_{name}() if {name} is FRESH else {name}")
        else:
            scope[f"default_{name}"] = field.default
            parameters.append(f"{name}=default_{name}")
            body.append(f"self.{name} = {name}")
    lines = [f"def __init__(self, {', '.join(parameters)}, unknown_tagged_fields=()):"]
    lines += [f"    {line}" for line in body]
    lines.append("    self.unknown_tagged_fields = unknown_tagged_fields")
    exec("\n".join(lines), scope)
    init = scope["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    init.__module__ = cls.__module__
    return init


class Struct(metaclass=StructType):
    """A struct of the protocol. Subclasses declare fields; instances hold one value each, in any version.

    The class has the name of Kafka's definition, or gives that as `official_name` where another struct has it already.
    """

    __slots__ = ("unknown_tagged_fields",)

    FIELDS: ClassVar[tuple[Field, ...]] = ()
    OFFICIAL_NAME: ClassVar[str] = "Struct"

    if TYPE_CHECKING:
        unknown_tagged_fields: tuple[TaggedField, ...] = ()
    else:

        def __init__(self) -> None:
            self.unknown_tagged_fields = ()

    def __init_subclass__(cls, *, official_name: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.OFFICIAL_NAME = official_name or cls.__name__

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return all(getattr(self, f.name) == getattr(other, f.name) for f in self.FIELDS) and tuple(
            self.unknown_tagged_fields
        ) == tuple(other.unknown_tagged_fields)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = [f"{f.name}={getattr(self, f.name)!r}" for f in self.FIELDS]
        if self.unknown_tagged_fields:
            shown.append(f"unknown_tagged_fields={self.unknown_tagged_fields!r}")
        return f"{type(self).__name__}({', '.join(shown)})"


class Message(Struct):
    """A struct that stands for itself on the wire: it has versions, some of which are flexible (KIP-482).

    `UNSTABLE_VERSIONS` are declared but not released: brokers neither advertise nor accept them.
    """

    VERSIONS: ClassVar[VersionRange] = NO_VERSIONS
    FLEXIBLE_VERSIONS: ClassVar[VersionRange] = NO_VERSIONS
    UNSTABLE_VERSIONS: ClassVar[VersionRange] = NO_VERSIONS

    def __init_subclass__(
        cls, *, versions: str | None = None, flexible: str = "none", unstable: str = "none", **kwargs: Any
    ) -> None:
        super().__init_subclass__(**kwargs)
        if versions is not None:
            cls.VERSIONS = VersionRange.parse(versions)
            cls.FLEXIBLE_VERSIONS = VersionRange.parse(flexible)
            cls.UNSTABLE_VERSIONS = VersionRange.parse(unstable)


class _ApiMessage(Message):
    API_KEY: ClassVar[ApiKey]

    def __init_subclass__(cls, *, api_key: ApiKey | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if api_key is not None:
            cls.API_KEY = api_key


class Request(_ApiMessage):
    """What a client sends under an API key."""


class Response(_ApiMessage):
    """What a broker answers under an API key."""
