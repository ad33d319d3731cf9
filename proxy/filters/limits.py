"""Limits for clients, even where upstream allows more.

[[filter]]
type = "limits"
topics = "team-a-.*"
max-record-bytes = 100_000
max-partitions = 50
refused-apis = ["DeleteTopics", "DeleteRecords"]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.topics.create_topics import CreateTopicsRequest
from ottla.proxy.filters.faults import api_named
from ottla.proxy.filters.filter import RefusedByFilterError, request_hook
from ottla.proxy.filters.records import RecordFilter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.kproto.schema import Request, Response
    from ottla.proxy.filters.filter import Call
    from ottla.proxy.filters.records import Batch


class Limits(RecordFilter):
    """Refuses records beyond a size in `topics`, topics beyond a number of partitions, and whole APIs."""

    def __init__(
        self,
        *,
        topics: str = ".*",
        max_record_bytes: int = 0,
        max_partitions: int = 0,
        refused_apis: Sequence[str] = (),
    ) -> None:
        super().__init__(topics=topics)
        for name, value in (("max-record-bytes", max_record_bytes), ("max-partitions", max_partitions)):
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise ValueError(f"{name}: {value!r} is not a whole number above 0")
        if isinstance(refused_apis, str):
            raise TypeError('refused-apis: write a list, ["DeleteTopics"]')
        self._max_record_bytes = max_record_bytes
        self._max_partitions = max_partitions
        self._refused = frozenset(map(api_named, refused_apis))

    def requests(self) -> frozenset[ApiKey]:
        sized = super().requests()
        return self._refused | (sized if self._max_record_bytes else sized - {ApiKey.PRODUCE})

    def responses(self) -> frozenset[ApiKey]:
        return super().responses() if self._max_record_bytes else frozenset()

    async def on_request(self, request: Any, call: Call) -> Request | Response | None:
        if call.key in self._refused:
            raise RefusedByFilterError(ErrorCode.POLICY_VIOLATION, "this is not allowed here")
        return await super().on_request(request, call)

    @request_hook(CreateTopicsRequest)
    async def check_partitions(self, request: CreateTopicsRequest, call: Call) -> None:
        asked = max((max(it.num_partitions, len(it.assignments)) for it in request.topics), default=0)
        if self._max_partitions and asked > self._max_partitions:
            raise RefusedByFilterError(
                ErrorCode.POLICY_VIOLATION, f"at most {self._max_partitions} partitions for each topic"
            )

    async def produced(self, batch: Batch, call: Call) -> None:
        for record in await batch.records():
            size_bytes = len(record.key or b"") + len(record.value or b"")
            if size_bytes > self._max_record_bytes:
                why = f"a record of {size_bytes} bytes; at most {self._max_record_bytes} are allowed"
                raise RefusedByFilterError(ErrorCode.MESSAGE_TOO_LARGE, why)
