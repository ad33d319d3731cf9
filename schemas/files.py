"""Schemas in files: a folder of them in the place of a registry, and single ones."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Final

from ottla.client.schema_registry import MAX_ANSWER_BYTES, MAX_REFERENCES, RegistryError, SchemaText

KINDS: Final = {".avsc": "AVRO", ".proto": "PROTOBUF", ".json": "JSON"}
"""The type of a schema by the ending of its file."""

_MAX_SIZE_BYTES: Final = MAX_ANSWER_BYTES
_MAX_FILES: Final = MAX_REFERENCES


class FolderSchemas:
    """Schemas by id and by subject, as a registry has them, in files such as `7.avsc`, `7.proto` or `7.json`, and
    `orders-value.avsc` for a subject.

    A schema's references are other files of the folder: JSON Schemas and Protobuf by their names, Avro by the full
    names of types, `shop.Address.avsc`. Raises `FAILURE`.
    """

    FAILURE: ClassVar[type[Exception]] = RegistryError

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        if not self._folder.is_dir():
            raise self.FAILURE(f"The registry {folder!r} is neither an http:// or https:// address nor a folder.")

    def schema(self, schema_id: int) -> SchemaText | None:
        return self._find(str(schema_id))

    def latest(self, subject: str) -> SchemaText:
        found = self._find(subject) if "/" not in subject else None
        if found is None:
            names = ", ".join(f"{subject}{suffix}" for suffix in KINDS)
            raise self.FAILURE(f"The folder of schemas {self._folder} contains none of {names}.")
        return found

    def _find(self, stem: str) -> SchemaText | None:
        for suffix in KINDS:
            if (path := self._folder / f"{stem}{suffix}").is_file():
                return schema_of_file(path, KINDS[suffix], self.FAILURE)
        return None


def schema_of_file(path: Path, kind: str, failure: type[Exception] = RegistryError) -> SchemaText:
    """A schema with those beside it that it refers to. Raises `failure` if it cannot be read."""
    text = _read(path, failure)
    return SchemaText(kind, text, _references(path, kind, text, failure))


def _references(path: Path, kind: str, text: str, failure: type[Exception]) -> Mapping[str, str]:
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
                    raise failure(f"The schema file {path} refers to more than {_MAX_FILES} others.")
                other = _read(names[name], failure)
                add(other)
                found[name] = other

    add(text)
    return found


def _read(path: Path, failure: type[Exception]) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_SIZE_BYTES + 1)
        if len(data) > _MAX_SIZE_BYTES:
            raise failure(f"The schema file {path} is longer than {_MAX_SIZE_BYTES:,} B.")
        return data.decode()
    except OSError as error:
        raise failure(f"The schema file {path} cannot be read: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise failure(f"The schema file {path} is not UTF-8.") from error
