"""The audit log: a JSON line for each request, and one for its answer.

    [[filter]]
    type = "audit"
    file = "audit.jsonl"
    apis = ["Produce", "DeleteTopics"]      # by default those that change topics, groups, settings and rights

    {"time": "2026-11-22T10:00:00.000Z", "id": 7, "event": "request", "principal": "User:alice",
     "client": "10.1.0.5:51234", "client_id": "admin", "listener": "broker-1", "api": "DeleteTopics",
     "names": {"topic_names": ["orders"]}}
    {"time": "2026-11-22T10:00:00.004Z", "id": 7, "event": "answer", "errors": []}

The line of a request is written before the request is forwarded, and that of an answer before the client gets it, so
nothing happens that is not written down. If a line cannot be written, the request is refused. Lines never contain
values, passwords or records. What a filter before this one (in the order of the file) answers, this one does not see.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import count
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.kproto.schema import Struct
from ottla.proxy.filters.faults import api_named
from ottla.proxy.filters.filter import Filter
from ottla.proxy.filters.lines import LinesFile
from ottla.proxy.login import BEFORE_LOGIN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.kproto.schema import Request, Response
    from ottla.proxy.filters.filter import Call

CHANGES: Final = frozenset(
    {
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.DELETE_RECORDS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.DELETE_GROUPS,
        ApiKey.OFFSET_DELETE,
        ApiKey.ELECT_LEADERS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        ApiKey.UPDATE_FEATURES,
        ApiKey.UNREGISTER_BROKER,
        ApiKey.UNREGISTER_CONTROLLER,
        ApiKey.WRITE_TXN_MARKERS,
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        ApiKey.DELETE_SHARE_GROUP_OFFSETS,
    }
)
"""The APIs that are written down unless the configuration says otherwise."""

#: The fields that say what a request is about; they hold no values.
_NAMES: Final = frozenset(
    {
        "entity_name",
        "entity_type",
        "feature",
        "group_id",
        "groups",
        "groups_names",
        "name",
        "principal",
        "resource_name",
        "topic",
        "topic_id",
        "topic_name",
        "topic_names",
        "transactional_id",
        "user",
    }
)
_MAX_NAMES: Final = 100


class Audit(Filter):
    """Writes down what clients ask for."""

    def __init__(self, *, file: str, apis: Sequence[str] = ()) -> None:
        if isinstance(apis, str):
            raise TypeError('apis: write a list, ["Produce"]')
        self._apis = frozenset(map(api_named, apis)) if apis else CHANGES
        if self._apis & BEFORE_LOGIN:
            raise ValueError("apis: ApiVersions, SaslHandshake and SaslAuthenticate are not shown to filters")
        self._file = LinesFile(file)
        self._numbers = count(1)

    def requests(self) -> frozenset[ApiKey]:
        return self._apis

    def responses(self) -> frozenset[ApiKey]:
        return self._apis

    async def on_request(self, request: Any, call: Call) -> Request | Response | None:
        number = next(self._numbers)
        call.notes[self] = number
        names: dict[str, list[str]] = {}
        for field, name in _names(request):
            found = names.setdefault(field, [])
            if name not in found and len(found) < _MAX_NAMES:
                found.append(name)
        await self._write(
            number,
            event="request",
            principal=call.client.principal,
            client=call.client.peer,
            client_id=call.client_id,
            listener=call.client.listener,
            api=call.key.kafka_name,
            names=names,
        )
        return None

    async def on_response(self, response: Any, call: Call) -> Response | None:
        errors = sorted({ErrorCode.name_of(code) for code in _errors(response)})
        await self._write(call.notes.pop(self), event="answer", errors=errors)
        return None

    async def _write(self, number: int, **fields: Any) -> None:
        time = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        await self._file.append(json.dumps({"time": time, "id": number, **fields}).encode() + b"\n")


def _names(struct: Struct) -> Iterator[tuple[str, str]]:
    """The names in a request, with their fields."""
    for field in struct.FIELDS:
        value = getattr(struct, field.name)
        if isinstance(value, Struct):
            yield from _names(value)
        elif isinstance(value, list):
            for item in value:
                if isinstance(item, Struct):
                    yield from _names(item)
                elif field.name in _NAMES and item is not None:
                    yield field.name, str(item)
        elif field.name in _NAMES and value and not (isinstance(value, UUID) and not value.int):
            yield field.name, str(value)


def _errors(struct: Struct) -> Iterator[int]:
    for field in struct.FIELDS:
        value = getattr(struct, field.name)
        if field.name == "error_code" and value:
            yield value
        elif isinstance(value, Struct):
            yield from _errors(value)
        elif isinstance(value, list):
            for item in value:
                if isinstance(item, Struct):
                    yield from _errors(item)
