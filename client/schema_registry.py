"""A client for schema registries that speak Confluent's HTTP interface."""

from __future__ import annotations

import base64
import json
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple

from ottla.client.errors import ClientError

_TIMEOUT_S: Final = 10.0
_NOT_FOUND: Final = 404
_REFUSED: Final = (401, 403)
MAX_ANSWER_BYTES: Final = 4 * 1024 * 1024
MAX_REFERENCES: Final = 100


class RegistryError(ClientError):
    """The schema registry did not answer, or lacks a subject."""


class RegisteredSchema(NamedTuple):
    """A schema as the registry has it: `kind` is AVRO, JSON or PROTOBUF."""

    kind: str
    schema: Any


class WholeSchema(NamedTuple):
    """A schema's text, and those of all that it refers to, by name, each after those that it refers to itself."""

    kind: str
    text: str
    references: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class RegistryLogin:
    """Who asks, by a name and a password, `user:password`, or by a token; and by which files TLS is spoken."""

    user_info: str | None = None
    token: str | None = None
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None


class Registry:
    """Looks schemas up by id and by subject, and remembers the ids: they never change. Raises `FAILURE`."""

    FAILURE: ClassVar[type[Exception]] = RegistryError

    def __init__(self, url: str, login: RegistryLogin | None = None) -> None:
        if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
            raise self.FAILURE(f"The schema registry {url!r} must be an http:// or https:// address.")
        self._url = url.rstrip("/")
        self._by_id: dict[int, Any] = {}
        self._headers = {"Accept": "application/vnd.schemaregistry.v1+json"} | _authorization(login)
        self._opener = urllib.request.build_opener(*self._handlers(login))

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
        # That of Protobuf is not JSON.
        schema = answer.get("schema") if kind == "PROTOBUF" else self._parsed(answer, f"schema {schema_id}")
        return RegisteredSchema(kind, schema)

    def whole(self, schema_id: int) -> WholeSchema | None:
        """The schema of this id with all that it refers to; None if the registry has none."""
        answer = self._get(f"/schemas/ids/{schema_id}")
        return None if answer is None else self._whole(answer, f"schema {schema_id}")

    def latest_whole(self, subject: str) -> WholeSchema:
        """The newest schema of a subject with all that it refers to. RegistryError if there is none."""
        answer = self._get(f"/subjects/{urllib.parse.quote(subject, safe='')}/versions/latest")
        if answer is None:
            raise self.FAILURE(
                f"The schema registry {self._url} has no subject {subject!r}: register the topic's schema there, "
                "or give a schema_file."
            )
        return self._whole(answer, f"subject {subject!r}")

    def _whole(self, answer: dict[str, Any], what: str) -> WholeSchema:
        references: dict[str, str] = {}
        self._add_references(answer, what, references, set())
        return WholeSchema(str(answer.get("schemaType", "AVRO")), self._text(answer, what), references)

    def _add_references(self, answer: dict[str, Any], what: str, found: dict[str, str], asked: set[str]) -> None:
        """Those that others refer to come first; a circle is left where it closes."""
        for reference in answer.get("references") or ():
            try:
                name, subject, version = str(reference["name"]), str(reference["subject"]), int(reference["version"])
            except (KeyError, TypeError, ValueError) as error:
                raise self.FAILURE(f"The registry's {what} has an invalid reference.") from error
            if name in asked:
                continue
            asked.add(name)
            if len(asked) > MAX_REFERENCES:
                raise self.FAILURE(f"The registry's {what} refers to more than {MAX_REFERENCES} others.")
            other = self._get(f"/subjects/{urllib.parse.quote(subject, safe='')}/versions/{version}")
            if other is None:
                raise self.FAILURE(
                    f"The registry's {what} refers to version {version} of {subject!r}, which is not there."
                )
            self._add_references(other, f"reference {name!r}", found, asked)
            found[name] = self._text(other, f"reference {name!r}")

    def _text(self, answer: dict[str, Any], what: str) -> str:
        if not isinstance(text := answer.get("schema"), str):
            raise self.FAILURE(f"The schema registry {self._url} answers no schema for {what}.")
        return text

    def _parsed(self, answer: dict[str, Any], what: str) -> Any:
        if answer.get("references"):
            raise self.FAILURE(f"The registry's {what} refers to other schemas, which is not supported: inline them.")
        try:
            return json.loads(self._text(answer, what))
        except (ValueError, RecursionError) as error:
            raise self.FAILURE(f"The schema registry {self._url} answers no schema for {what}.") from error

    def _get(self, path: str) -> dict[str, Any] | None:
        request = urllib.request.Request(self._url + path, headers=self._headers)
        try:
            with self._opener.open(request, timeout=_TIMEOUT_S) as response:
                data = response.read(MAX_ANSWER_BYTES + 1)
        except urllib.error.HTTPError as error:
            with error:
                if error.code == _NOT_FOUND:
                    return None
            refused = ": check its login in the configuration" if error.code in _REFUSED else ""
            raise self.FAILURE(f"The schema registry {self._url} answers {error.code} to {path}{refused}.") from error
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise self.FAILURE(
                f"The schema registry {self._url} does not answer ({reason}): check registry in the configuration."
            ) from error
        if len(data) > MAX_ANSWER_BYTES:
            raise self.FAILURE(f"The schema registry {self._url} answers more than {MAX_ANSWER_BYTES:,} B to {path}.")
        try:
            answer = json.loads(data)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            raise self.FAILURE(f"The schema registry {self._url} answers {path} with something other than JSON.")
        return answer

    def _handlers(self, login: RegistryLogin | None) -> list[urllib.request.BaseHandler]:
        if login is None:
            return []
        if not (login.ca_file or login.certificate_file):
            return [_NoRedirects()]
        try:
            context = ssl.create_default_context(cafile=login.ca_file)
            if login.certificate_file:
                context.load_cert_chain(login.certificate_file, login.key_file)
        except OSError as error:
            raise self.FAILURE(
                f"The certificates for the schema registry {self._url} cannot be used: {error}."
            ) from error
        return [_NoRedirects(), urllib.request.HTTPSHandler(context=context)]


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A login is for the registry that was named, and not for where it points to."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _authorization(login: RegistryLogin | None) -> dict[str, str]:
    if login is not None and login.user_info is not None:
        return {"Authorization": f"Basic {base64.b64encode(login.user_info.encode()).decode()}"}
    if login is not None and login.token is not None:
        return {"Authorization": f"Bearer {login.token}"}
    return {}
