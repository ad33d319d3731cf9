"""Fetch responses of light partitions, whose records lie in many places and are sent without a copy.

The builder writes the ordinary response: light partitions only, no endpoints of leaders, from version 7 on. Whatever
else it meets, what does not fit included, it leaves to the schema's codec: the result and the errors are always that
one's.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, cast

from ottla.kproto import codec
from ottla.kproto.compiler.layout import STEP_ELEMENTS
from ottla.kproto.compiler.runtime import ONE_BYTE, uvarint
from ottla.kproto.hot.fetched_partition import FetchedPartition, RecordsChain
from ottla.kproto.messages.data.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    SnapshotId,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ottla.kproto.codec import Buffer, Part
    from ottla.kproto.schema import TaggedField

__all__ = ["JOINED_BYTES", "FetchedPartition", "RecordsChain", "build_in_steps", "build_parts"]

_ORDINARY_VERSIONS: Final = range(7, FetchResponse.VERSIONS.highest + 1)
_FIRST_VERSION_WITH_READ_REPLICA: Final = 11
_FIRST_FLEXIBLE_VERSION: Final = 12
_FIRST_VERSION_BY_ID: Final = 13
#: Records up to this size are copied into the piece around them: to send them by themselves costs more.
JOINED_BYTES: Final = 2048
_pack_head: Final = struct.Struct(">ihi").pack
_pack_int16: Final = struct.Struct(">h").pack
_pack_int32: Final = struct.Struct(">i").pack
_pack_transaction: Final = struct.Struct(">qq").pack
#: What fits into one byte of a compact array's length.
_MAX_SHORT_COUNT: Final = 126


def build_parts(response: FetchResponse, version: int) -> list[Part]:
    """The encoded response in pieces, as `codec.build_parts` gives it, with every chain spread into its views.

    What lies between two chains is one piece, and so are chains that are small.
    """
    parts = None
    if version in _ORDINARY_VERSIONS and not response.node_endpoints:
        steps = _build(response, _layout(version))
        try:
            while True:
                next(steps)
        except StopIteration as end:
            parts = end.value
        except struct.error:
            parts = None
    return _build_by_codec(response, version) if parts is None else parts


def build_in_steps(response: FetchResponse, version: int) -> codec.Steps[list[Part]]:
    """`build_parts` with stops."""
    parts = None
    if version in _ORDINARY_VERSIONS and not response.node_endpoints:
        try:
            parts = yield from _build(response, _layout(version))
        except struct.error:
            parts = None
    return (yield from _by_codec_in_steps(response, version)) if parts is None else parts


# The ordinary response ------------------------------------------------------------------------------------------------


class _Layout(NamedTuple):
    """How a version writes a response, its topics and its partitions."""

    is_flexible: bool
    is_by_id: bool
    #: Index, error code, high watermark, last stable offset, log start offset, count of aborted transactions.
    pack_partition: Callable[..., bytes]
    #: The same, and what follows if there are neither aborted transactions nor records.
    pack_without_records: Callable[..., bytes]
    without_records: bytes
    #: The counts that stand for null, and for an empty list.
    null: int
    empty: int
    #: What stands before the size of the records, and behind the records.
    before_size: bytes
    behind_records: bytes


@cache
def _layout(version: int) -> _Layout:
    is_flexible = version >= _FIRST_FLEXIBLE_VERSION
    read_replica = _pack_int32(-1) if version >= _FIRST_VERSION_WITH_READ_REPLICA else b""
    tags = b"\0" if is_flexible else b""
    without_records = read_replica + _size(0, is_flexible=is_flexible) + tags
    fields = ">ihqqqB" if is_flexible else ">ihqqqi"
    return _Layout(
        is_flexible,
        version >= _FIRST_VERSION_BY_ID,
        struct.Struct(fields).pack,
        struct.Struct(f"{fields}{len(without_records)}s").pack,
        without_records,
        0 if is_flexible else -1,
        1 if is_flexible else 0,
        read_replica,
        tags,
    )


def _size(count: int, *, is_flexible: bool) -> bytes:
    """A size or a count."""
    if not is_flexible:
        return _pack_int32(count)
    return ONE_BYTE[count + 1] if count <= _MAX_SHORT_COUNT else uvarint(count + 1)


def _build(response: FetchResponse, layout: _Layout) -> codec.Steps[list[Part] | None]:
    is_flexible, is_by_id, pack_partition, pack_without_records, without_records, null, empty, *_ = layout
    parts: list[Part] = []
    left = STEP_ELEMENTS
    joined: list[Buffer] = [_pack_head(response.throttle_time_ms, response.error_code, response.session_id)]
    joined.append(_size(len(response.responses), is_flexible=is_flexible))
    for topic in response.responses:
        partitions: Sequence[object] = topic.partitions
        joined.append(topic.topic_id.bytes if is_by_id else _name(topic.topic, is_flexible=is_flexible))
        joined.append(_size(len(partitions), is_flexible=is_flexible))
        for partition in partitions:
            left -= 1
            if not left:
                left = STEP_ELEMENTS
                parts.append(b"".join(joined))
                joined = []
                yield
            if not isinstance(partition, FetchedPartition):
                return None
            aborted = partition.aborted_transactions
            if partition.records is None and not aborted:
                joined.append(
                    pack_without_records(
                        partition.partition_index,
                        partition.error_code,
                        partition.high_watermark,
                        partition.last_stable_offset,
                        partition.log_start_offset,
                        null if aborted is None else empty,
                        without_records,
                    )
                )
                continue
            if aborted and is_flexible and len(aborted) > _MAX_SHORT_COUNT:
                return None
            joined.append(
                pack_partition(
                    partition.partition_index,
                    partition.error_code,
                    partition.high_watermark,
                    partition.last_stable_offset,
                    partition.log_start_offset,
                    null if aborted is None else empty + len(aborted),
                )
            )
            for producer_id, first_offset in aborted or ():
                joined.append(_pack_transaction(producer_id, first_offset))
                joined.append(layout.behind_records)
            size_bytes, views = _pieces(partition.records)
            joined.append(layout.before_size)
            joined.append(_size(size_bytes, is_flexible=is_flexible))
            if size_bytes <= JOINED_BYTES:
                joined += cast("Sequence[Buffer]", views)  # nothing as short is in a file
            else:
                parts.append(b"".join(joined))
                parts += views
                joined = []
            joined.append(layout.behind_records)
        if is_flexible:
            joined.append(b"\0")
    if is_flexible:
        joined.append(b"\0")
    parts.append(b"".join(joined))
    return parts


def _name(name: str, *, is_flexible: bool) -> bytes:
    encoded = name.encode()
    size = _size(len(encoded), is_flexible=True) if is_flexible else _pack_int16(len(encoded))
    return size + encoded


def _pieces(records: Buffer | RecordsChain | None) -> tuple[int, Sequence[Part]]:
    """The size of records, and where they lie."""
    if records is None:
        return 0, ()
    if isinstance(records, _BYTES_LIKE):
        return len(records), (records,)
    return records.size_bytes, list(records.parts())


_BYTES_LIKE = (memoryview, bytes, bytearray)


# All others -----------------------------------------------------------------------------------------------------------


class _Views:
    """Lets the codec measure a chain and pass it through as one piece."""

    __slots__ = ("_size_bytes", "views")

    def __init__(self, records: Buffer | RecordsChain | None) -> None:
        self._size_bytes, self.views = _pieces(records)

    def __len__(self) -> int:
        return self._size_bytes


class _Twin:
    """A light partition with all the attributes of `PartitionData`."""

    __slots__ = (*FetchedPartition.__slots__,)

    preferred_read_replica: ClassVar[int] = -1
    diverging_epoch: ClassVar[EpochEndOffset] = EpochEndOffset()
    current_leader: ClassVar[LeaderIdAndEpoch] = LeaderIdAndEpoch()
    snapshot_id: ClassVar[SnapshotId] = SnapshotId()
    unknown_tagged_fields: ClassVar[tuple[TaggedField, ...]] = ()

    def __init__(self, light: FetchedPartition) -> None:
        self.partition_index = light.partition_index
        self.error_code = light.error_code
        self.high_watermark = light.high_watermark
        self.last_stable_offset = light.last_stable_offset
        self.log_start_offset = light.log_start_offset
        pairs = light.aborted_transactions
        self.aborted_transactions = None if pairs is None else [_aborted(*pair) for pair in pairs]
        self.records = _Views(light.records)


def _aborted(producer_id: int, first_offset: int) -> AbortedTransaction:
    return AbortedTransaction(producer_id=producer_id, first_offset=first_offset)


def _build_by_codec(response: FetchResponse, version: int) -> list[Part]:
    steps = _by_codec_in_steps(response, version)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            parts: list[Part] = end.value
            return parts


def _by_codec_in_steps(response: FetchResponse, version: int) -> codec.Steps[list[Part]]:
    whole = FetchResponse(
        throttle_time_ms=response.throttle_time_ms,
        error_code=response.error_code,
        session_id=response.session_id,
        node_endpoints=response.node_endpoints,
    )
    left = STEP_ELEMENTS
    for topic in response.responses:
        partitions: list[Any] = []
        for partition in topic.partitions:
            partitions.append(_whole(partition))
            left -= 1
            if not left:
                left = STEP_ELEMENTS
                yield
        whole.responses.append(
            FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=partitions)
        )
    parts: list[Part] = []
    pieces: list[Any] = []
    for _ in codec.write_in_steps(whole, version, pieces.append):
        _spread(pieces, parts)
        pieces.clear()
        yield
    _spread(pieces, parts)
    # Freeing 50,000 at once would hold up everybody.
    for topic in whole.responses:
        while topic.partitions:
            del topic.partitions[-STEP_ELEMENTS:]
            yield
    return parts


def _spread(pieces: list[Any], parts: list[Part]) -> None:
    """Add what was encoded to the parts: each chain as its views, what lies between two as one."""
    joined = 0
    for position, piece in enumerate(pieces):
        if type(piece) is _Views:
            parts.append(b"".join(pieces[joined:position]))
            parts += piece.views
            joined = position + 1
    parts.append(b"".join(pieces[joined:]))


def _whole(partition: Any) -> Any:
    return _Twin(partition) if isinstance(partition, FetchedPartition) else partition
