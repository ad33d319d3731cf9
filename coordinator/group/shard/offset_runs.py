"""Loading offsets in bulk: records that are laid out alike are taken apart by columns, not one by one.

That is what a commit of many partitions leaves in the log: keys of one group and one topic, values of one length. The
columns are cut out and compared by the interpreter's own loops, five times as fast. Everything else is replayed record
by record.
"""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from ottla.coordinator.group.shard.offset_check import fixed_places, is_text, metadata_of, topic_place
from ottla.kproto.errors import DecodeError
from ottla.kproto.records import BatchHeader, RecordError
from ottla.kproto.records.varint import read_varint
from ottla.kproto.text import ERRORS

MIN_RECORDS: Final = 8
"""With fewer records it is not worth trying."""
MAX_RECORDS: Final = 256
"""A run is replayed in well under the 500 µs for which the loop may be held."""

_ONE_BYTE_DELTAS: Final = 64
_TWO_BYTE_DELTAS: Final = 8192
_OFFSET_KEY: Final = b"\0\1"


class Run(NamedTuple):
    """Consecutive offsets of one group: their records' keys and values, and where they end in the batch."""

    group_id: str
    keys: Sequence[bytes]
    values: Sequence[bytes]
    end: int


class _Layout(NamedTuple):
    """How many bytes each part of a record takes."""

    head: int  # length, attributes, timestamp delta
    offset_delta: int
    key_size: int
    key: int
    value_size: int
    value: int

    @property
    def size_bytes(self) -> int:
        return sum(self) + 1  # no headers

    @property
    def key_start(self) -> int:
        return self.head + self.offset_delta + self.key_size

    @property
    def value_start(self) -> int:
        return self.key_start + self.key + self.value_size


def cut_run(payload: bytes, start: int, header: BatchHeader, index: int) -> Run | None:
    """The run that begins with the batch's record number `index`, at `start`; None if there is none.

    `payload` is the batch's records section, uncompressed.
    """
    count = min(header.record_count - index, MAX_RECORDS)
    if index < _ONE_BYTE_DELTAS:
        count = min(count, _ONE_BYTE_DELTAS - index)
    if index + count > _TWO_BYTE_DELTAS:
        return None
    if header.last_offset_delta != header.record_count - 1:
        return None  # compacted: the offsets are not consecutive
    try:
        layout = _layout(payload, start)
    except RecordError:
        return None
    end = start if layout is None else start + count * layout.size_bytes
    if layout is None or end > len(payload):
        return None
    value_start = start + layout.value_start
    value_places = fixed_places(payload[value_start : value_start + layout.value])
    if not value_places or not _is_alike(payload, start, end, layout, value_places):
        return None
    gaps = (layout.key_start, layout.value_size)
    cut = struct.iter_unpack(f"{gaps[0]}x{layout.key}s{gaps[1]}x{layout.value}sx", payload[start:end])
    keys, values = zip(*cut, strict=True)
    return _run(keys, values, end)


def _run(keys: Sequence[bytes], values: Sequence[bytes], end: int) -> Run | None:
    """The run, if all keys are of one group, and all text in keys and values is ASCII or was checked."""
    first, last = min(keys), max(keys)
    try:
        topic_start, topic_end = topic_place(first)
    except DecodeError:
        return None
    if first[:topic_start] != last[:topic_start]:
        return None
    topics = {first[topic_start:topic_end]}
    if first[:topic_end] != last[:topic_end]:
        topics.update(key[topic_start:topic_end] for key in keys)
    if not is_text(topics) or (metadata_of(values[0]) and not is_text(map(metadata_of, values))):
        return None
    try:
        group_id = first[4 : topic_start - 2].decode("utf-8", ERRORS)
    except UnicodeDecodeError:
        return None
    return Run(group_id, keys, values, end)


def _is_alike(payload: bytes, start: int, end: int, layout: _Layout, value_places: Sequence[int]) -> bool:
    """Whether all the records have this layout: the same bytes in every place where they must not differ."""
    size = layout.size_bytes
    key_start, value_start = layout.key_start, layout.value_start
    places = (
        *range(layout.head),
        *range(key_start - layout.key_size, key_start),
        *range(value_start - layout.value_size, value_start),
        *(value_start + place for place in value_places),
        size - 1,
    )
    for place in places:
        column = payload[start + place : end : size]
        if column.count(column[0]) != len(column):
            return False
    return True


def _layout(payload: bytes, start: int) -> _Layout | None:
    """How the record at `start` is laid out, None if it is not a usual commit. Raises RecordError if it is cut off."""
    length, body = read_varint(payload, start)
    if payload[body : body + 2] != b"\0\0":  # no attributes, and the batch's own timestamp
        return None
    _, delta_end = read_varint(payload, body + 2)
    key_size, key_start = read_varint(payload, delta_end)
    if key_size < len(_OFFSET_KEY) or not payload.startswith(_OFFSET_KEY, key_start):
        return None
    value_size, value_start = read_varint(payload, key_start + key_size)
    end = value_start + value_size
    if value_size < 0 or end + 1 != body + length or payload[end : end + 1] != b"\0":  # a tombstone, or headers
        return None
    return _Layout(
        head=body + 2 - start,
        offset_delta=delta_end - body - 2,
        key_size=key_start - delta_end,
        key=key_size,
        value_size=value_start - key_start - key_size,
        value=value_size,
    )
