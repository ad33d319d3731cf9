"""Records whose values do not fit a schema are refused, each with the reason.

    [[filter]]
    type = "validation"
    topics = "orders-.*"
    json-schema = "orders.schema.json"      # or
    avro-schema = "orders.avsc"             # or
    registry = "http://registry:8081"       # values begin with the id of their schema, as Confluent's serializers write

Records without a value, which delete keys in compacted topics, are let through. `part = "key"` looks at keys instead.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final

import trio

from ottla.client.schema_registry import Registry, RegistryError
from ottla.kproto.errors import ErrorCode
from ottla.proxy.filters.filter import InvalidRecordsError, RefusedByFilterError
from ottla.proxy.filters.records import RecordFilter
from ottla.proxy.filters.schemas import Check, check_of, check_of_file
from ottla.schemas.errors import SchemaError
from ottla.schemas.framing import HEADER_SIZE_BYTES, schema_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.proxy.filters.filter import Call
    from ottla.proxy.filters.records import Batch

_MAX_ERRORS: Final = 100
"""How many invalid records of a batch are reported."""
_MAX_SCHEMAS: Final = 1000
_MAX_SCHEMAS_OF_BATCH: Final = 20
_UNKNOWN_SECONDS: Final = 10.0


class Validation(RecordFilter):
    """Checks the keys or values of what is produced to `topics`."""

    def __init__(
        self,
        *,
        topics: str = ".*",
        json_schema: str = "",
        avro_schema: str = "",
        registry: str = "",
        part: str = "value",
    ) -> None:
        super().__init__(topics=topics)
        if sum(map(bool, (json_schema, avro_schema, registry))) != 1:
            raise ValueError("write one of json-schema, avro-schema and registry")
        if part not in ("key", "value"):
            raise ValueError(f"part: {part!r} is neither key nor value")
        self._is_key = part == "key"
        self._registered = None if not registry else _Registered(registry)
        if json_schema:
            self._check = check_of_file(json_schema, "JSON")
        elif avro_schema:
            self._check = check_of_file(avro_schema, "AVRO")

    async def produced(self, batch: Batch, call: Call) -> None:
        records = await batch.records()
        values = [record.key if self._is_key else record.value for record in records]
        check = self._check if self._registered is None else await self._registered.check_for(values)
        wrong = await batch.work(lambda: _wrong(values, check))
        if wrong:
            raise InvalidRecordsError(wrong)


def _wrong(values: Sequence[bytes | None], check: Check) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    for number, value in enumerate(values):
        if value is not None and (reason := check(bytes(value))) is not None:
            found.append((number, reason))
            if len(found) == _MAX_ERRORS:
                break
    return found


class _Registered:
    """The checks of the schemas in a registry, made when a record first names one."""

    def __init__(self, url: str) -> None:
        try:
            self._registry = Registry(url)
        except RegistryError as error:
            raise ValueError(str(error)) from None
        self._checks: OrderedDict[int, Check] = OrderedDict()
        self._unknown_until: OrderedDict[int, float] = OrderedDict()
        self._asking = trio.Lock()

    async def check_for(self, values: Sequence[bytes | None]) -> Check:
        """The check for these values. Raises RefusedByFilterError, after which clients retry, if the registry does not
        answer.
        """
        ids = {number for it in values if it is not None and (number := schema_id(it)) is not None}
        if len(ids) > _MAX_SCHEMAS_OF_BATCH:
            raise RefusedByFilterError(ErrorCode.INVALID_RECORD, f"a batch of {len(ids)} schemas")
        checks = {number: await self._find(number) for number in ids}

        def check(value: bytes) -> str | None:
            number = schema_id(value)
            if number is None:
                return "it does not begin with the id of a schema"
            found = checks.get(number)
            return f"the registry has no schema {number}" if found is None else found(value[HEADER_SIZE_BYTES:])

        return check

    async def _find(self, number: int) -> Check | None:
        async with self._asking:
            if number in self._checks:
                self._checks.move_to_end(number)
                return self._checks[number]
            if self._unknown_until.get(number, 0.0) > time.monotonic():
                return None
            made = await trio.to_thread.run_sync(self._ask, number)
            if made is None:
                _keep(self._unknown_until, number, time.monotonic() + _UNKNOWN_SECONDS)
            else:
                _keep(self._checks, number, made)
            return made

    def _ask(self, number: int) -> Check | None:
        try:
            found = self._registry.schema(number)
        except RegistryError as error:
            raise RefusedByFilterError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from None
        try:
            return None if found is None else check_of(found)
        except SchemaError as error:
            return _always(f"its schema {number}: {error}")


def _always(reason: str) -> Check:
    return lambda value: reason


def _keep(kept: OrderedDict[int, Any], key: int, value: Any) -> None:
    kept[key] = value
    kept.move_to_end(key)
    if len(kept) > _MAX_SCHEMAS:
        kept.popitem(last=False)
