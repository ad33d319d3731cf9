"""Writes what clients produce to a file that `ottla replay` can send again and `ottla decode` can show.

    [[filter]]
    type = "recorder"
    topics = "orders-.*"
    file = "orders.recording"
    max-size-mib = 1024

Records are written as they arrive, before they are forwarded: without offsets, and including those that the broker then
refuses or a transaction aborts. When the file has reached its size, recording ends with a line in the log, and clients
notice nothing.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import trio

from ottla.client.recording import entry_line, header_line, is_recording, topics_line
from ottla.client.topic_reader import Entry
from ottla.kproto.messages.topics.metadata import MetadataResponse
from ottla.kproto.records import TimestampType
from ottla.proxy.filters.filter import response_hook
from ottla.proxy.filters.lines import LinesFile
from ottla.proxy.filters.records import RecordFilter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.kproto.records import Record
    from ottla.proxy.filters.filter import Call
    from ottla.proxy.filters.records import Batch

logger = logging.getLogger(__name__)

_START_BYTES: Final = 100
_MIB: Final = 1024 * 1024


class Recorder(RecordFilter):
    """Writes down what is produced to `topics`."""

    def __init__(self, *, file: str, topics: str = ".*", max_size_mib: int = 1024) -> None:
        super().__init__(topics=topics)
        if not isinstance(max_size_mib, int) or isinstance(max_size_mib, bool) or max_size_mib < 1:
            raise ValueError(f"max-size-mib: {max_size_mib!r} is not a whole number above 0")
        self._file = LinesFile(file, max_size_mib * _MIB)
        self._partitions: dict[str, int] = {}  # by topic, as clients are told
        self._written: dict[str, int] = {}
        self._is_full = False
        self._turn = trio.Lock()
        self._is_begun = self._file.size_bytes > 0
        if self._is_begun:
            with open(file, "rb") as existing:
                if not is_recording(existing.read(_START_BYTES)):
                    raise ValueError(f"{file} exists, and is not a recording")

    @response_hook(MetadataResponse)
    async def learn(self, response: MetadataResponse, call: Call) -> None:
        for topic in response.topics:
            if topic.name is not None and topic.partitions and self.concerns(topic.name):
                self._partitions[topic.name] = len(topic.partitions)

    async def produced(self, batch: Batch, call: Call) -> None:
        if self._is_full:
            return
        records = await batch.records()
        lines = await batch.work(lambda: _lines(batch.topic, batch.partition, records))
        async with self._turn:
            announced = self._announced(batch.topic, batch.partition)
            if await self._file.append(announced + lines):
                self._is_begun = True
                self._written[batch.topic] = self._count(batch.topic, batch.partition)
            elif not self._is_full:
                self._is_full = True
                logger.warning("%s has its full size: nothing more is recorded", self._file.path)

    def _announced(self, topic: str, partition: int) -> bytes:
        """The line that must come before a record, if it is the first of its topic."""
        count = self._count(topic, partition)
        if not self._is_begun:
            return header_line({topic: count})
        return b"" if self._written.get(topic) == count else topics_line({topic: count})

    def _count(self, topic: str, partition: int) -> int:
        """How many partitions a topic has, as far as is known."""
        return max(self._partitions.get(topic, 0), self._written.get(topic, 0), partition + 1)


def _lines(topic: str, partition: int, records: Sequence[Record]) -> bytes:
    return b"".join(
        entry_line(Entry(topic, partition, record._replace(offset=-1), TimestampType.CREATE_TIME, None, None))
        for record in records
    )
