"""Record batches on their way out: one that is being filled, and one that is sealed and can be cut in halves."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

from ottla.client.offsets import TopicPartition
from ottla.kproto.records import (
    HEADER_SIZE_BYTES,
    NO_LEADER_EPOCH,
    BatchHeader,
    Compression,
    assemble_batch,
    build_batch,
    compress,
    iter_records,
    parse_batch_header,
)
from ottla.pipeline.client.transactions import ProducerIdentity

__all__ = ["OpenBatch", "SealedBatch"]

_MAGIC: Final = 2
_TRANSACTIONAL: Final = 0x10
_NO_SEQUENCE: Final = -1


class SealedBatch:
    """A batch that says all but its sequence number."""

    def __init__(self, part: TopicPartition, header: BatchHeader, payload: bytes) -> None:
        self.part = part
        self.header = header
        self._payload = payload

    @property
    def count(self) -> int:
        return self.header.record_count

    @property
    def size_bytes(self) -> int:
        return HEADER_SIZE_BYTES + len(self._payload)

    def number(self, sequence: int) -> None:
        """Give it the sequence number of its first record."""
        self.header = self.header._replace(base_sequence=sequence)

    def encode(self) -> bytes:
        return assemble_batch(self.header, self._payload)

    def halves(self) -> Iterator[SealedBatch]:
        """Its records in two batches; of more than one record."""
        whole = self.encode()
        header = parse_batch_header(whole, 0)
        records = [record._replace(offset=-1) for record in iter_records(whole, 0, header)]
        middle = len(records) // 2
        for part in (records[:middle], records[middle:]):
            data = build_batch(
                part,
                compression=Compression(header.compression),
                producer_id=header.producer_id,
                producer_epoch=header.producer_epoch,
                base_sequence=_NO_SEQUENCE,
                is_transactional=header.is_transactional,
            )
            yield SealedBatch(self.part, parse_batch_header(data, 0), data[HEADER_SIZE_BYTES:])


class OpenBatch:
    """Encoded records for one partition. All have the time at which the batch was begun."""

    def __init__(self, part: TopicPartition) -> None:
        self.part = part
        self.count = 0
        self.size_bytes = HEADER_SIZE_BYTES
        self._began_ms = time.time_ns() // 1_000_000
        self._records: list[memoryview] = []

    def append(self, records: memoryview, count: int) -> None:
        """Add records whose numbers go on from `count`."""
        self._records.append(records)
        self.size_bytes += len(records)
        self.count += count

    def seal(self, identity: ProducerIdentity, compression: Compression) -> SealedBatch:
        header = BatchHeader(
            base_offset=0,
            batch_length=0,
            leader_epoch=NO_LEADER_EPOCH,
            magic=_MAGIC,
            crc=0,
            attributes=compression | (0 if identity.transactional_id is None else _TRANSACTIONAL),
            last_offset_delta=self.count - 1,
            base_timestamp_ms=self._began_ms,
            max_timestamp_ms=self._began_ms,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            base_sequence=_NO_SEQUENCE,
            record_count=self.count,
        )
        return SealedBatch(self.part, header, compress(compression, b"".join(self._records)))
