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

_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_TIMEOUT_S: Final = 10.0
_MAX_MESSAGE_LENGTH: Final = 500
_NOT_FOUND: Final = 404
_REFUSED: Final = (401, 403)
MAX_ANSWER_BYTES: Final = 4 * 1024 * 1024
MAX_REFERENCES: Final = 100


class RegistryError(ClientError):
    """The schema registry did not answer, or lacks a subject."""


class SchemaText(NamedTuple):
    """A schema as it was written: `kind` is AVRO, JSON or PROTOBUF.

    `references` are the texts of those that it refers to, directly or not, by the names used in the references; each
    comes after those that it refers to itself.
    """

    kind: str
    text: str
    references: Mapping[str, str] = {}


class SubjectVersion(NamedTuple):
    """A version of a subject: its id, and the schema with all that it refers to."""

    id: int
    schema: SchemaText


@dataclass(frozen=True, slots=True)
class RegistryLogin:
    """The client's credentials, `user:password` or a token, and its files for TLS."""

    user_info: str | None = None
    token: str | None = None
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None


class Registry:
    """Looks schemas up by id and by subject, and registers them. Blocks. Raises `FAILURE`."""

    FAILURE: ClassVar[type[Exception]] = RegistryError

    def __init__(self, url: str, login: RegistryLogin | None = None) -> None:
        if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
            raise self.FAILURE(f"The schema registry {url!r} must be an http:// or https:// address.")
        self._url = url.rstrip("/")
        self._headers = {"Accept": _TYPE} | _authorization(login)
        self._opener = urllib.request.build_opener(*self._handlers(login))

    def schema(self, schema_id: int) -> SchemaText | None:
        """The schema of this id with all that it refers to; None if the registry has none."""
        answer = self._get(f"/schemas/ids/{schema_id}")
        return None if answer is None else self._whole(answer, f"schema {schema_id}")

    def latest(self, subject: str) -> SchemaText:
        """The newest schema of a subject with all that it refers to. RegistryError if there is none."""
        return self.latest_version(subject).schema

    def latest_version(self, subject: str) -> SubjectVersion:
        """The newest version of a subject. RegistryError if there is none."""
        answer = self._get(f"/subjects/{urllib.parse.quote(subject, safe='')}/versions/latest")
        if answer is None:
            raise self.FAILURE(
                f"The schema registry {self._url} has no subject {subject!r}: register the topic's schema there, "
                "or give a schema_file."
            )
        return SubjectVersion(self._id(answer), self._whole(answer, f"subject {subject!r}"))

    def register(self, subject: str, schema: SchemaText) -> int:
        """The id of a schema in a subject, where it is registered if it is not there. RegistryError if it is refused.

        What it refers to goes with it by subjects of the references' names, each in its newest version.
        """
        references = [{"name": name, "subject": name, "version": -1} for name in schema.references]
        body = {"schema": schema.text, "schemaType": schema.kind, "references": references}
        return self._id(self._ask(f"/subjects/{urllib.parse.quote(subject, safe='')}/versions", body) or {})

    def subjects(self, schema_id: int) -> frozenset[str]:
        """The subjects that have this id in a version that is not deleted."""
        found = self._ask(f"/schemas/ids/{schema_id}/versions", None, expected=list)
        return frozenset(str(it.get("subject")) for it in found or () if isinstance(it, dict))

    def _id(self, answer: Mapping[str, Any]) -> int:
        found = answer.get("id")
        if not isinstance(found, int):
            raise self.FAILURE(f"The schema registry {self._url} answers without an id.")
        return found

    def _whole(self, answer: dict[str, Any], what: str) -> SchemaText:
        references: dict[str, str] = {}
        self._add_references(answer, what, references, set())
        return SchemaText(str(answer.get("schemaType", "AVRO")), self._text(answer, what), references)

    def _add_references(self, answer: dict[str, Any], what: str, found: dict[str, str], asked: set[str]) -> None:
        """Add referenced schemas before those that refer to them; a circle is left where it closes."""
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

    def _get(self, path: str) -> dict[str, Any] | None:
        found: dict[str, Any] | None = self._ask(path, None)
        return found

    def _ask(self, path: str, body: Mapping[str, Any] | None, expected: type = dict) -> Any:
        """The answer to GET or, with a body, to POST; None for 404."""
        data = None if body is None else json.dumps(body).encode()
        headers = self._headers if data is None else {**self._headers, "Content-Type": _TYPE}
        request = urllib.request.Request(self._url + path, data=data, headers=headers)
        try:
            with self._opener.open(request, timeout=_TIMEOUT_S) as response:
                read = response.read(MAX_ANSWER_BYTES + 1)
        except urllib.error.HTTPError as error:
            with error:
                if error.code == _NOT_FOUND and body is None:
                    return None
                said = _message(error)
            refused = ": check its login in the configuration" if error.code in _REFUSED else ""
            raise self.FAILURE(
                f"The schema registry {self._url} answers {error.code} to {path}{said}{refused}."
            ) from error
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise self.FAILURE(
                f"The schema registry {self._url} does not answer ({reason}): check registry in the configuration."
            ) from error
        if len(read) > MAX_ANSWER_BYTES:
            raise self.FAILURE(f"The schema registry {self._url} answers more than {MAX_ANSWER_BYTES:,} B to {path}.")
        try:
            answer = json.loads(read)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, expected):
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


def _message(error: urllib.error.HTTPError) -> str:
    """The registry's error message, as the end of a sentence."""
    try:
        said = json.loads(error.read(MAX_ANSWER_BYTES))["message"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return ""
    return f" ({str(said)[:_MAX_MESSAGE_LENGTH]})"


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
