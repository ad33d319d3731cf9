"""Filters of records: they see what is produced and fetched, batch by batch, decoded only when it is looked at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

import trio

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.data.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from ottla.kproto.records import (
    BatchHeader,
    Record,
    RecordError,
    iter_batches,
    iter_records,
    rebuild_batch,
    whole_batches_size_bytes,
)
from ottla.proxy.filters.filter import Filter, InvalidRecordsError, RefusedByFilterError, pattern

if TYPE_CHECKING:
    from ottla.kproto.schema import Request, Response
    from ottla.proxy.filters.filter import Call

T = TypeVar("T")

_INLINE_BYTES: Final = 16 * 1024
"""Smaller batches are decoded and built on the event loop, larger ones in a worker thread."""
MAX_RECORDS_BYTES: Final = 64 * 1024 * 1024
"""How far a batch may inflate."""


class Batch:
    """A record batch on its way. Its bytes go on as they are unless it is given other records.

    Control batches, which end transactions, are never shown.
    """

    __slots__ = ("_bytes", "_records", "_replaced", "header", "partition", "topic")

    def __init__(self, topic: str, partition: int, header: BatchHeader, data: bytes) -> None:
        self.topic = topic
        self.partition = partition
        self.header = header
        self._bytes = data
        self._records: list[Record] | None = None
        self._replaced: Sequence[Record] | None = None

    async def records(self) -> Sequence[Record]:
        """Its records, decoded at the first call, or the ones it was given."""
        if self._replaced is not None:
            return self._replaced
        if self._records is None:
            self._records = await _somewhere(len(self._bytes), self._decode)
        return self._records

    def replace(self, records: Sequence[Record]) -> None:
        """Give it other records. They keep the offsets of the originals; on the way out, some may be missing."""
        self._replaced = records

    async def work(self, function: Callable[[], T]) -> T:
        """Do work that looks at all of its records: on the event loop if it is small, else in a worker thread."""
        return await _somewhere(len(self._bytes), function)

    @property
    def is_changed(self) -> bool:
        return self._replaced is not None

    async def build(self) -> bytes:
        """The bytes that go on."""
        if self._replaced is None:
            return self._bytes
        return await _somewhere(len(self._bytes), self._encode)

    def _decode(self) -> list[Record]:
        return list(iter_records(self._bytes, 0, self.header, limit_bytes=MAX_RECORDS_BYTES))

    def _encode(self) -> bytes:
        assert self._replaced is not None
        return rebuild_batch(self.header, self._replaced)


class RecordFilter(Filter):
    """The base of filters of records: override `produced`, `fetched` or both. `topics` is a regular expression.

    If `produced` refuses a batch, only that partition fails, and the same is true if `fetched` refuses one; the rest of
    the request goes on.
    """

    NEEDS_TOPIC_NAMES: ClassVar[bool] = True

    def __init__(self, *, topics: str = ".*") -> None:
        self._topics = pattern("topics", topics)

    async def produced(self, batch: Batch, call: Call) -> None:
        """A batch on its way in; its records may be changed one for one."""

    async def fetched(self, batch: Batch, call: Call) -> None:
        """A batch on its way out; its records may be changed, or left out."""

    def concerns(self, topic: str) -> bool:
        """Whether a topic's records are looked at."""
        return self._topics.fullmatch(topic) is not None

    def requests(self) -> frozenset[ApiKey]:
        return super().requests() | ({ApiKey.PRODUCE} if self._overrides("produced") else set())

    def responses(self) -> frozenset[ApiKey]:
        own = {ApiKey.PRODUCE} if self._overrides("produced") else set()
        return super().responses() | own | ({ApiKey.FETCH} if self._overrides("fetched") else set())

    async def on_request(self, request: Any, call: Call) -> Request | Response | None:
        if call.key is not ApiKey.PRODUCE:
            return await super().on_request(request, call)
        changed = await super().on_request(request, call)
        return await self._produced(request if changed is None else changed, call) or changed

    async def on_response(self, response: Any, call: Call) -> Response | None:
        changed = await super().on_response(response, call)
        response = response if changed is None else changed
        if call.key is ApiKey.PRODUCE:
            return self._with_refused(response, call) or changed
        if call.key is ApiKey.FETCH:
            return await self._fetched(response, call) or changed
        return changed

    def _overrides(self, name: str) -> bool:
        return getattr(type(self), name) is not getattr(RecordFilter, name)

    async def _produced(self, request: Any, call: Call) -> Request | Response | None:
        if isinstance(request, ProduceResponse):
            return request
        changed = False
        refused: list[tuple[str, int, RefusedByFilterError]] = []
        for topic in request.topic_data:
            if not self.concerns(topic.name):
                continue
            kept = []
            for partition in topic.partition_data:
                try:
                    records = await self._pass(topic.name, partition.index, partition.records, call, self.produced)
                except RefusedByFilterError as error:
                    refused.append((topic.name, partition.index, error))
                    continue
                if records is not None:
                    partition.records, changed = records, True
                kept.append(partition)
            topic.partition_data = kept
        if not refused:
            return request if changed else None
        if request.acks == 0:
            raise refused[0][2]
        request.topic_data = [topic for topic in request.topic_data if topic.partition_data]
        call.notes[self] = refused
        # The chain asks no filter for its own answer.
        return request if request.topic_data else self._with_refused(ProduceResponse(), call)

    def _with_refused(self, response: Any, call: Call) -> Response | None:
        """The answer, including the batches that were not forwarded."""
        refused = call.notes.pop(self, ())
        topics = {topic.name: topic for topic in response.responses}
        for name, index, error in refused:
            if name not in topics:
                topics[name] = TopicProduceResponse(name=name)
                response.responses.append(topics[name])
            failed = PartitionProduceResponse(index=index, error_code=error.code, base_offset=-1)
            failed.error_message = str(error)[:1000]
            if isinstance(error, InvalidRecordsError):
                failed.record_errors = [
                    BatchIndexAndErrorMessage(batch_index=number, batch_index_error_message=reason)
                    for number, reason in error.wrong
                ]
            topics[name].partition_responses.append(failed)
        return response if refused else None

    async def _fetched(self, response: Any, call: Call) -> Response | None:
        changed = False
        for topic in response.responses:
            if not self.concerns(topic.topic):
                continue
            for partition in topic.partitions:
                if not partition.records:
                    continue
                try:
                    records = await self._pass(
                        topic.topic, partition.partition_index, partition.records, call, self.fetched
                    )
                except RefusedByFilterError as error:
                    partition.error_code, records = error.code, b""
                if records is not None:
                    partition.records, changed = records, True
        return response if changed else None

    async def _pass(self, topic: str, partition: int, records: Any, call: Call, hook: Any) -> bytes | None:
        """Show the batches of a partition to a hook; returns the new bytes, or None if nothing has changed.

        An incomplete batch at the end of a fetch, which brokers may send, is left as it is, unless a batch before it
        has changed.
        """
        if not records:
            return None
        parts: list[bytes] = []
        changed = False
        try:
            view = memoryview(records)
            whole = whole_batches_size_bytes(view)
            for pos, header in iter_batches(view[:whole]):
                batch = Batch(topic, partition, header, bytes(view[pos : pos + header.size_bytes]))
                if not header.is_control:
                    await hook(batch, call)
                    await trio.lowlevel.checkpoint()
                changed = changed or batch.is_changed
                parts.append(await batch.build())
        except RecordError as error:
            raise RefusedByFilterError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
        return b"".join(parts) if changed else None


async def _somewhere(size_bytes: int, work: Callable[[], T]) -> T:
    """Do work on the event loop if it is small, else in a worker thread; a cancellation waits for the thread to end."""
    if size_bytes <= _INLINE_BYTES:
        return work()
    return await trio.to_thread.run_sync(work)
