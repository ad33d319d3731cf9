"""Where schemas are looked up: a registry with Confluent's HTTP interface, or a folder; and single files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ottla.client import schema_registry
from ottla.client.schema_registry import RegistryLogin
from ottla.pipeline.errors import PipelineError
from ottla.pipeline.values.schemas import Schemas, SchemaText

__all__ = ["FolderSchemas", "Registry", "RegistryError", "open_schemas", "schema_of_file"]

_KINDS: Final = {".avsc": "AVRO", ".proto": "PROTOBUF", ".json": "JSON"}
_MAX_SIZE_BYTES: Final = schema_registry.MAX_ANSWER_BYTES
_MAX_FILES: Final = schema_registry.MAX_REFERENCES


class RegistryError(PipelineError):
    """The schema registry did not answer, or lacks a subject."""


class Registry(schema_registry.Registry):
    """Implements Schemas: looks them up by id and by subject. Its own failures are the pipeline's."""

    FAILURE = RegistryError

    def schema(self, schema_id: int) -> SchemaText | None:
        found = self.whole(schema_id)
        return None if found is None else SchemaText(*found)

    def latest(self, subject: str) -> SchemaText:
        return SchemaText(*self.latest_whole(subject))


class FolderSchemas:
    """Implements Schemas over files such as `7.avsc`, `7.proto` or `7.json`, and `orders-value.avsc` for a subject.

    A schema's references are other files of the folder: JSON Schemas and Protobuf by their names, Avro by the full
    names of types, `shop.Address.avsc`.
    """

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        if not self._folder.is_dir():
            raise RegistryError(f"The registry {folder!r} is neither an http:// or https:// address nor a folder.")

    def schema(self, schema_id: int) -> SchemaText | None:
        return self._find(str(schema_id))

    def latest(self, subject: str) -> SchemaText:
        found = self._find(subject) if "/" not in subject else None
        if found is None:
            names = ", ".join(f"{subject}{suffix}" for suffix in _KINDS)
            raise RegistryError(f"The folder of schemas {self._folder} contains none of {names}.")
        return found

    def _find(self, stem: str) -> SchemaText | None:
        for suffix in _KINDS:
            if (path := self._folder / f"{stem}{suffix}").is_file():
                return schema_of_file(path, _KINDS[suffix])
        return None


def open_schemas(address: str, login: RegistryLogin) -> Schemas:
    """The registry of an address, or the folder of a path. RegistryError if it is neither."""
    return Registry(address, login) if "://" in address else FolderSchemas(address)


def schema_of_file(path: Path, kind: str) -> SchemaText:
    """A schema with those beside it that it refers to. RegistryError if it cannot be read."""
    text = _read(path)
    return SchemaText(kind, text, _references(path, kind, text))


def _references(path: Path, kind: str, text: str) -> Mapping[str, str]:
    """The files beside it whose names appear in it, or in one of those: each after those that it refers to itself."""
    names = {other.stem if kind == "AVRO" else other.name: other for other in path.parent.glob(f"*{path.suffix}")}
    names = {name: other for name, other in names.items() if other != path and not other.stem.isdigit()}
    found: dict[str, str] = {}
    asked: set[str] = set()

    def add(words: str) -> None:
        for name in sorted(names):
            if f'"{name}' in words and name not in asked:
                asked.add(name)
                if len(asked) > _MAX_FILES:
                    raise RegistryError(f"The schema file {path} refers to more than {_MAX_FILES} others.")
                other = _read(names[name])
                add(other)
                found[name] = other

    add(text)
    return found


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_SIZE_BYTES + 1)
        if len(data) > _MAX_SIZE_BYTES:
            raise RegistryError(f"The schema file {path} is longer than {_MAX_SIZE_BYTES:,} B.")
        return data.decode()
    except OSError as error:
        raise RegistryError(f"The schema file {path} cannot be read: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise RegistryError(f"The schema file {path} is not UTF-8.") from error
