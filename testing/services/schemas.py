"""The schema registry of a broker or cluster under test, in a thread of this process."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import ProxyHandler, Request, build_opener

from ottla.testing.errors import BrokerError
from ottla.testing.faults.dispatcher import EXEMPT_CLIENT_ID
from ottla.testing.services.trio_thread import TrioThread

if TYPE_CHECKING:
    from ottla.client.security import Security
    from ottla.registry.standalone import Running

_REQUEST_SECONDS: Final = 30.0
_TYPE: Final = "application/vnd.schemaregistry.v1+json"
# The registry is on this machine, whatever proxy the environment names.
_OPENER: Final = build_opener(ProxyHandler({}))


class Schemas:
    """A registry, started when this is made. Failures raise BrokerError."""

    def __init__(self, bootstrap: Sequence[tuple[str, int]], security: Security) -> None:
        from ottla.registry import standalone

        self._thread: TrioThread[Running] = TrioThread(
            "schema registry",
            partial(standalone.run, bootstrap, ("127.0.0.1", 0), security=security, client_id=EXEMPT_CLIENT_ID),
        )

    @property
    def url(self) -> str:
        """Its address: `http://127.0.0.1:port`."""
        return self._thread.started.url

    def register(
        self,
        subject: str,
        schema: str | Mapping[str, Any] | Sequence[Any],
        schema_type: str = "AVRO",
        references: Iterable[Mapping[str, Any]] = (),
    ) -> int:
        """Register a schema, as text or as what JSON can write, and return its id. `schema_type` is AVRO, JSON or
        PROTOBUF; each reference has a name, a subject and a version.
        """
        text = schema if isinstance(schema, str) else json.dumps(schema)
        body = {"schema": text, "schemaType": schema_type, "references": [dict(it) for it in references]}
        return int(self._ask("POST", f"/subjects/{quote(subject, safe='')}/versions", body)["id"])

    def schema(self, schema_id: int) -> str:
        """The schema of an id, as text."""
        return str(self._ask("GET", f"/schemas/ids/{schema_id}")["schema"])

    def subjects(self) -> list[str]:
        """The subjects that have schemas, in order."""
        return list(self._ask("GET", "/subjects"))

    def set_compatibility(self, level: str, subject: str | None = None) -> None:
        """Set the compatibility level, such as NONE or FULL, of a subject or (None) of everything."""
        path = "/config" if subject is None else f"/config/{quote(subject, safe='')}"
        self._ask("PUT", path, {"compatibility": level})

    def wait_empty(self) -> None:
        """Return when it has seen that its topic was deleted, and has a new one."""
        self._thread.call(self._thread.started.log.wait_empty)

    def close(self) -> None:
        """Stop it."""
        self._thread.close()

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = Request(self.url + path, data=data, method=method, headers={"Content-Type": _TYPE})
        try:
            with _OPENER.open(request, timeout=_REQUEST_SECONDS) as response:
                return json.load(response)
        except HTTPError as error:
            with error:
                answer = json.load(error)
            raise BrokerError(f"{answer['message']} ({answer['error_code']})") from None
