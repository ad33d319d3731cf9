"""Keys and values with schemas, for `ottla consume` and `ottla produce`: JSON outside, Avro, JSON Schema or Protobuf
inside, as Confluent's console tools have it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from ottla.cli import CommandError

if TYPE_CHECKING:
    import argparse

    from ottla.client.client import Client
    from ottla.client.schema_registry import Registry, SchemaText
    from ottla.schemas.codec import Codec

T = TypeVar("T")

RAW: Final = "raw"
_KINDS: Final = {"avro": "AVRO", "json-schema": "JSON", "protobuf": "PROTOBUF"}

Convert = Callable[[bytes], bytes]
"""Makes bytes with a schema of JSON, or the other way round. Raises CommandError."""


class Formats(NamedTuple):
    """How keys and values are converted; None leaves them as they are."""

    key: Convert | None
    value: Convert | None


def add_formats(parser: argparse.ArgumentParser, *, writes: bool) -> None:
    """The options that `readers` and `writers` look at."""
    for part in ("key", "value"):
        parser.add_argument(
            f"--{part}-format",
            choices=[RAW, *_KINDS],
            default=RAW,
            help=f"how {part}s are written; as JSON here, and there with a schema (default: raw, as it is)",
        )
        what = (
            f"the {part}s' schema: a subject, an id, or a file, which is registered (default: the subject TOPIC-{part})"
            if writes
            else f"the schema of {part}s that do not begin with an id: a subject, an id or a file"
        )
        parser.add_argument(f"--{part}-schema", metavar="SCHEMA", help=what)
        if writes:
            parser.add_argument(
                f"--{part}-message", metavar="NAME", help="the Protobuf message (default: the first one of the schema)"
            )
    if writes:
        parser.add_argument("--no-schema-id", action="store_true", help="write no schema id before keys and values")
    parser.add_argument(
        "--registry",
        metavar="URL",
        help="the schema registry (default: schema.registry.url of --command-config, else the broker's own)",
    )


def readers(arguments: argparse.Namespace, client: Client) -> Formats:
    """The formats that make JSON of the keys and values of records."""
    schemas = _Schemas(arguments, client)
    made = [_reader(arguments, part, schemas) for part in ("key", "value")]
    return Formats(*made)


def writers(arguments: argparse.Namespace, client: Client) -> Formats:
    """The formats that make keys and values of JSON."""
    schemas = _Schemas(arguments, client)
    made = [_writer(arguments, part, schemas) for part in ("key", "value")]
    return Formats(*made)


def _reader(arguments: argparse.Namespace, part: str, schemas: _Schemas) -> Convert | None:
    kind = _KINDS.get(getattr(arguments, f"{part}_format"))
    if kind is None:
        return None
    from ottla.schemas.errors import ValueMismatchError
    from ottla.schemas.framing import HEADER_SIZE_BYTES, schema_id

    named = getattr(arguments, f"{part}_schema")
    bare = None if named is None else _codec(schemas.named(named, kind)[1], kind)
    by_id: dict[int, Codec] = {}

    def read(data: bytes) -> bytes:
        codec, body = bare, data
        if codec is None:
            number = schema_id(data)
            if number is None:
                raise CommandError(f"the {part} does not begin with the id of a schema: name one with --{part}-schema")
            codec, body = by_id.get(number), data[HEADER_SIZE_BYTES:]
            if codec is None:
                codec = by_id[number] = _codec(schemas.by_id(number), kind)
        try:
            return codec.to_json(body).encode()
        except ValueMismatchError as error:
            raise CommandError(f"the {part} cannot be decoded: {error}") from None

    return read


def _writer(arguments: argparse.Namespace, part: str, schemas: _Schemas) -> Convert | None:
    kind = _KINDS.get(getattr(arguments, f"{part}_format"))
    if kind is None:
        return None
    from ottla.schemas.errors import ValueMismatchError
    from ottla.schemas.framing import framed

    subject = f"{arguments.topic}-{part}"
    number, schema = schemas.named(getattr(arguments, f"{part}_schema") or subject, kind)
    codec = _codec(schema, kind, getattr(arguments, f"{part}_message"))
    if number is None and not arguments.no_schema_id:
        number = schemas.register(subject, schema)

    def write(text: bytes) -> bytes:
        try:
            body = codec.from_json(text.decode())
        except UnicodeDecodeError:
            raise CommandError(f"the {part} is not UTF-8: {text[:40]!r}") from None
        except ValueMismatchError as error:
            raise CommandError(f"the {part} {text[:40].decode('utf-8', 'replace')!r}: {error}") from None
        return body if number is None or arguments.no_schema_id else framed(number, body)

    return write


def _codec(schema: SchemaText, kind: str, message: str | None = None) -> Codec:
    from ottla.schemas.codec import codec_of
    from ottla.schemas.errors import SchemaError

    if schema.kind != kind:
        wanted = next(name for name, known in _KINDS.items() if known == kind)
        raise CommandError(f"the schema is of type {schema.kind}, not {wanted}")
    try:
        return codec_of(schema, message=message)
    except SchemaError as error:
        raise CommandError(f"the schema cannot be used: {error}") from None


class _Schemas:
    """The source of schemas; a registry is looked for when it is first needed."""

    def __init__(self, arguments: argparse.Namespace, client: Client) -> None:
        self._arguments = arguments
        self._client = client
        self._registry: Registry | None = None

    def named(self, text: str, kind: str) -> tuple[int | None, SchemaText]:
        """A schema by an id, a file or a subject, with its id if it has one already."""
        if text.isdecimal():
            return int(text), self.by_id(int(text))
        if "/" in text or Path(text).is_file():
            from ottla.schemas.files import schema_of_file

            return None, _asked(lambda: schema_of_file(Path(text), kind))
        found = _asked(lambda: self._opened().latest_version(text))
        return found.id, found.schema

    def by_id(self, number: int) -> SchemaText:
        found = _asked(lambda: self._opened().schema(number))
        if found is None:
            raise CommandError(f"the schema registry has no schema {number}")
        return found

    def register(self, subject: str, schema: SchemaText) -> int:
        return _asked(lambda: self._opened().register(subject, schema))

    def _opened(self) -> Registry:
        if self._registry is None:
            from ottla.cli.records.registry_address import open_registry

            self._registry = open_registry(self._arguments, self._client)
        return self._registry


def _asked(ask: Callable[[], T]) -> T:
    from ottla.client.schema_registry import RegistryError

    try:
        return ask()
    except RegistryError as error:
        raise CommandError(str(error)) from None
