"""A client for schema registries that speak Confluent's HTTP interface."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, ClassVar, Final, NamedTuple

from ottla.client.errors import ClientError

_TIMEOUT_S: Final = 10.0
_NOT_FOUND: Final = 404


class RegistryError(ClientError):
    """The schema registry did not answer, or lacks a subject."""


class RegisteredSchema(NamedTuple):
    """A schema as the registry has it: `kind` is AVRO, JSON or PROTOBUF."""

    kind: str
    schema: Any


class Registry:
    """Looks schemas up by id and by subject, and remembers the ids: they never change. Raises `FAILURE`."""

    FAILURE: ClassVar[type[Exception]] = RegistryError

    def __init__(self, url: str) -> None:
        if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
            raise self.FAILURE(f"The schema registry {url!r} must be an http:// or https:// address.")
        self._url = url.rstrip("/")
        self._by_id: dict[int, Any] = {}

    def schema(self, schema_id: int) -> Any:
        """The Avro schema of this id; None if the registry has none."""
        if schema_id not in self._by_id:
            found = self.registered(schema_id)
            if found is None or found.kind != "AVRO":
                return None
            self._by_id[schema_id] = found.schema
        return self._by_id[schema_id]

    def registered(self, schema_id: int) -> RegisteredSchema | None:
        """The schema of this id, asked for once more; None if the registry has none."""
        answer = self._get(f"/schemas/ids/{schema_id}")
        if answer is None:
            return None
        kind = answer.get("schemaType", "AVRO")
        # That of Protobuf is no JSON.
        schema = answer.get("schema") if kind == "PROTOBUF" else self._parsed(answer, f"schema {schema_id}")
        return RegisteredSchema(kind, schema)

    def latest(self, subject: str) -> Any:
        """The newest schema of a subject. RegistryError if there is none."""
        answer = self._get(f"/subjects/{urllib.parse.quote(subject, safe='')}/versions/latest")
        if answer is None:
            raise self.FAILURE(
                f"The schema registry {self._url} has no subject {subject!r}: register the topic's schema there, "
                "or give a schema_file."
            )
        return self._parsed(answer, f"subject {subject!r}")

    def _parsed(self, answer: dict[str, Any], what: str) -> Any:
        if answer.get("references"):
            raise self.FAILURE(f"The registry's {what} refers to other schemas, which is not supported: inline them.")
        try:
            return json.loads(answer["schema"])
        except (KeyError, ValueError) as error:
            raise self.FAILURE(f"The schema registry {self._url} answers no schema for {what}.") from error

    def _get(self, path: str) -> dict[str, Any] | None:
        request = urllib.request.Request(self._url + path, headers={"Accept": "application/vnd.schemaregistry.v1+json"})
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as response:
                answer: dict[str, Any] = json.load(response)
                return answer
        except urllib.error.HTTPError as error:
            with error:
                if error.code == _NOT_FOUND:
                    return None
            raise self.FAILURE(f"The schema registry {self._url} answers {error.code} to {path}.") from error
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise self.FAILURE(
                f"The schema registry {self._url} does not answer ({reason}): check registry in the configuration."
            ) from error
