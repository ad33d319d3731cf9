"""The manifest of one partition: which of its segments are in the object store, and where its log begins there.

It is the only object that is written twice, always by compare-and-swap, so that of two nodes that take themselves for
the leader one sees what the other has written. A manifest is never changed in memory: an edit returns another one, or
the same if there is nothing to do.

The format, version 1, big-endian, CRC means CRC-32C:

    8 bytes   "OtTierMf"
    u16       format version
    u16       flags, 0
    16 bytes  topic id
    i32       partition
    u64       revision: one more than that of the version before it
    i32       leader epoch of the last one who wrote it
    i64       log start offset: nothing below it is there any more, here or on the brokers
    i64       end offset: everything from the log start to here was uploaded
    u32       bytes of the leader epochs
    u32       number of segments
              leader epochs (`LeaderEpochs.to_bytes`) of [log start offset, end offset)
              segments of 76 bytes, by offset, without gaps:
                  i32, 16 bytes   the upload: leader epoch and random number
                  i64       base offset
                  i64       last offset
                  i64       largest timestamp of its records, -1 if there is none
                  i64       when it was uploaded, in milliseconds since 1970
                  u64       bytes of its batches
                  u64, u32, u32   where its index begins in the upload's index object, its length, and its CRC
    u32       CRC of all before it
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from ottla.kproto.records.crc import value as crc_of
from ottla.storage.errors import CorruptLogError
from ottla.storage.state.leader_epochs import NO_EPOCH, EpochEntry, LeaderEpochs
from ottla.tiers.errors import (
    CorruptObjectError,
    DivergedManifestError,
    FencedUploadError,
    NotContiguousError,
    OverlappingUploadError,
    UnknownFormatError,
)
from ottla.tiers.names import UploadId

__all__ = ["Manifest", "RemoteSegment"]

_MAGIC: Final = b"OtTierMf"
_FORMAT_VERSION: Final = 1
_HEADER: Final = struct.Struct(">8sHH16siQiqqII")
_SEGMENT: Final = struct.Struct(">i16sqqqqQQII")
_CRC: Final = struct.Struct(">I")
_LAST_OFFSET_AT: Final = 28
_OFFSET: Final = struct.Struct(">q")


class RemoteSegment(NamedTuple):
    """One partition's part of an upload: all its batches with offsets in [base, last]."""

    upload: UploadId
    base_offset: int
    last_offset: int
    max_timestamp_ms: int
    uploaded_at_ms: int
    size_bytes: int
    index_position: int
    index_length: int
    index_crc: int


class Manifest:
    """One partition's segments in the object store. They are kept packed: 100,000 of them take 8 MB."""

    __slots__ = (
        "_segments",
        "end_offset",
        "epochs",
        "leader_epoch",
        "log_start_offset",
        "partition",
        "revision",
        "size_bytes",
        "topic_id",
    )

    def __init__(self, topic_id: UUID, partition: int, log_start_offset: int = 0, segments: bytes = b"") -> None:
        """Of a partition of which nothing was uploaded so far, or with these packed segments."""
        self.topic_id = topic_id
        self.partition = partition
        self.revision = 0
        self.leader_epoch = NO_EPOCH
        self.log_start_offset = log_start_offset
        self.end_offset = log_start_offset
        self.epochs = LeaderEpochs()
        self._segments = segments
        #: The bytes of all batches in the object store.
        self.size_bytes = sum(fields[6] for fields in _SEGMENT.iter_unpack(segments))

    def only(self, places: range) -> Manifest:
        """Of the segments at these places, one at least, and nothing else: to read them elsewhere. It has no epochs."""
        segments = self._segments[places.start * _SEGMENT.size : places.stop * _SEGMENT.size]
        start = max(self.log_start_offset, self[places.start].base_offset)
        found = Manifest(self.topic_id, self.partition, start, segments)
        found.end_offset = self[places.stop - 1].last_offset + 1
        return found

    @classmethod
    def of_all(cls, topic_id: UUID, partition: int, log_start_offset: int, end_offset: int) -> Manifest:
        """As if all between two offsets had been uploaded, to ask what could go from the disk at most."""
        manifest = cls(topic_id, partition, log_start_offset)
        manifest.end_offset = end_offset
        return manifest

    def __repr__(self) -> str:
        return f"<manifest of {self.partition}: [{self.log_start_offset}, {self.end_offset}) in {len(self)} segments>"

    # Looking things up.

    def __len__(self) -> int:
        return len(self._segments) // _SEGMENT.size

    def __getitem__(self, place: int) -> RemoteSegment:
        if not 0 <= place < len(self):
            raise IndexError(place)
        epoch, number, *rest = _SEGMENT.unpack_from(self._segments, place * _SEGMENT.size)
        return RemoteSegment(UploadId(epoch, UUID(bytes=number)), *rest)

    def __iter__(self) -> Iterator[RemoteSegment]:
        return map(self.__getitem__, range(len(self)))

    def size_bytes_below(self, offset: int) -> int:
        """The bytes of the segments that end below an offset."""
        whole = memoryview(self._segments)[: self.place_of(offset) * _SEGMENT.size]
        return sum(fields[6] for fields in _SEGMENT.iter_unpack(whole))

    def place_of(self, offset: int) -> int:
        """The place of the segment with this offset, or of the next one; `len(self)` if there is none."""
        return bisect_left(range(len(self)), offset, key=self._last_offset)

    def find(self, offset: int) -> RemoteSegment | None:
        """The segment with this offset; None if the offset is not in the object store."""
        if not self.log_start_offset <= offset < self.end_offset:
            return None
        return self[self.place_of(offset)]

    def place_of_time(self, timestamp_ms: int, first: int = 0) -> int | None:
        """The place of the first segment, from a place on, with a record of this time or later; None if none has one.

        It looks at every segment: of very many, in a worker thread.
        """
        times = (fields[4] for fields in _SEGMENT.iter_unpack(memoryview(self._segments)[first * _SEGMENT.size :]))
        return next((place for place, time_ms in enumerate(times, first) if time_ms >= timestamp_ms), None)

    def _last_offset(self, place: int) -> int:
        last_offset: int = _OFFSET.unpack_from(self._segments, place * _SEGMENT.size + _LAST_OFFSET_AT)[0]
        return last_offset

    # Edits.

    def with_segment(
        self, segment: RemoteSegment, epochs: Sequence[EpochEntry], leader_epoch: int, *, after: int
    ) -> Manifest:
        """A segment was uploaded, whose batches have these epochs.

        `after` is the epoch of the record before it in the leader's log, `NO_EPOCH` if the leader no longer has it.
        The segment may be listed already: then an earlier attempt has been made, and there is nothing to do.

        Raises FencedUploadError, OverlappingUploadError, NotContiguousError or DivergedManifestError.
        """
        place = self.place_of(segment.base_offset)
        if place < len(self) and self[place].upload == segment.upload:
            return self
        self._require_epoch(leader_epoch)
        if len(self) or self.end_offset > self.log_start_offset:
            if segment.base_offset < self.end_offset:
                raise OverlappingUploadError(f"{segment.base_offset} is below {self.end_offset}, where {self!r} ends")
            if segment.base_offset > self.end_offset:
                raise NotContiguousError(f"{segment.base_offset} is beyond {self.end_offset}, where {self!r} ends")
        elif segment.base_offset < self.log_start_offset:
            raise OverlappingUploadError(f"{segment.base_offset} is below the log start {self.log_start_offset}")
        known = self.epochs.latest_epoch
        is_other = NO_EPOCH not in (after, known) and after != known
        if is_other or (epochs and epochs[0].epoch < known):
            raise DivergedManifestError(
                f"{self!r} ends in epoch {known}, and the leader's log has epoch {after} before {segment.base_offset}"
            )
        edited = self._next(leader_epoch, self._segments + _packed(segment))
        if not len(self) and self.end_offset == self.log_start_offset:
            edited.log_start_offset = segment.base_offset
        for entry in epochs:
            edited.epochs.assign(*entry)
        edited.end_offset = segment.last_offset + 1
        return edited

    def with_log_start(self, offset: int, leader_epoch: int) -> Manifest:
        """Delete everything below an offset: by retention, or because a client asked for it.

        Segments go as a whole. The log may have been deleted up to an offset beyond the end.
        Raises FencedUploadError.
        """
        if offset <= self.log_start_offset:
            return self
        self._require_epoch(leader_epoch)
        edited = self._next(leader_epoch, self._segments[self.place_of(offset) * _SEGMENT.size :])
        edited.log_start_offset = offset
        edited.end_offset = max(offset, self.end_offset)
        if offset >= self.end_offset:
            edited.epochs.clear()
        else:
            edited.epochs.truncate_from_start(offset)
        return edited

    def emptied_at(self, offset: int, leader_epoch: int) -> Manifest:
        """Everything in the object store is given up; what is copied from now on begins at an offset, perhaps below the
        end. Raises FencedUploadError.
        """
        if not len(self) and self.log_start_offset == self.end_offset == offset:
            return self
        self._require_epoch(leader_epoch)
        edited = self._next(leader_epoch, b"")
        edited.log_start_offset = edited.end_offset = offset
        edited.epochs.clear()
        return edited

    def fenced(self, leader_epoch: int) -> Manifest:
        """The same, which nobody may change any more who leads in an earlier epoch. Raises FencedUploadError."""
        self._require_epoch(leader_epoch)
        return self if self.leader_epoch == leader_epoch else self._next(leader_epoch, self._segments)

    def _require_epoch(self, leader_epoch: int) -> None:
        if leader_epoch < self.leader_epoch:
            raise FencedUploadError(f"epoch {leader_epoch} is before {self.leader_epoch}, which wrote {self!r}")

    def _next(self, leader_epoch: int, segments: bytes) -> Manifest:
        edited = Manifest(self.topic_id, self.partition, self.log_start_offset, segments)
        edited.revision = self.revision + 1
        edited.leader_epoch = leader_epoch
        edited.end_offset = self.end_offset
        edited.epochs = LeaderEpochs.from_bytes(self.epochs.to_bytes())
        return edited

    # As an object.

    def to_bytes(self) -> bytes:
        epochs = self.epochs.to_bytes()
        header = _HEADER.pack(
            _MAGIC,
            _FORMAT_VERSION,
            0,
            self.topic_id.bytes,
            self.partition,
            self.revision,
            self.leader_epoch,
            self.log_start_offset,
            self.end_offset,
            len(epochs),
            len(self),
        )
        content = b"".join((header, epochs, self._segments))
        return content + _CRC.pack(crc_of(content))

    @classmethod
    def from_bytes(cls, content: bytes, topic_id: UUID, partition: int) -> Manifest:
        """The inverse of `to_bytes`. Raises CorruptObjectError, also for another partition's manifest."""
        if len(content) < _HEADER.size + _CRC.size or content[:8] != _MAGIC:
            raise CorruptObjectError(f"the manifest of partition {partition} is too short, or none")
        if crc_of(memoryview(content)[: -_CRC.size]) != _CRC.unpack_from(content, len(content) - _CRC.size)[0]:
            raise CorruptObjectError(f"the manifest of partition {partition} does not have its checksum")
        _, version, flags, topic, number, revision, leader_epoch, start, end, epoch_bytes, count = _HEADER.unpack_from(
            content
        )
        if version != _FORMAT_VERSION or flags:
            raise UnknownFormatError(f"the manifest of partition {partition} has format version {version}")
        first = _HEADER.size + epoch_bytes
        if (topic, number) != (topic_id.bytes, partition) or len(content) != first + count * _SEGMENT.size + _CRC.size:
            raise CorruptObjectError(f"the manifest of partition {partition} is that of another one, or too short")
        manifest = cls(topic_id, partition, start, content[first : -_CRC.size])
        manifest.revision, manifest.leader_epoch, manifest.end_offset = revision, leader_epoch, end
        try:
            manifest.epochs = LeaderEpochs.from_bytes(content[_HEADER.size : first])
        except CorruptLogError as error:
            raise CorruptObjectError(f"the manifest of partition {partition}: {error}") from error
        manifest._check()
        return manifest

    def _check(self) -> None:
        """That the segments follow each other from the log start to the end; a checksum says nothing of its writer."""
        end_offset: int | None = None
        for fields in _SEGMENT.iter_unpack(self._segments):
            if fields[3] < fields[2] or (end_offset is not None and fields[2] != end_offset):
                raise CorruptObjectError(f"the segments of {self!r} do not follow each other")
            end_offset = fields[3] + 1
        is_whole = self.end_offset == self.log_start_offset if end_offset is None else end_offset == self.end_offset
        if not is_whole or (len(self) and not self[0].base_offset <= self.log_start_offset <= self[0].last_offset):
            raise CorruptObjectError(f"the segments of {self!r} are not those between its offsets")


def _packed(segment: RemoteSegment) -> bytes:
    upload, *rest = segment
    return _SEGMENT.pack(upload.leader_epoch, upload.number.bytes, *rest)
