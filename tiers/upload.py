"""Uploading parts of logs: data first, then the index, and only then may a manifest name them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol
from uuid import UUID

import trio

from ottla.kproto.errors import ApiError
from ottla.kproto.records.crc import value as crc_of
from ottla.runtime.backoff import Backoff
from ottla.tiers.errors import CorruptObjectError, ObjectStoreUnavailableError, PreconditionFailedError
from ottla.tiers.names import TopicNames, UploadId
from ottla.tiers.object_store import ABSENT
from ottla.tiers.offload import Offload, in_a_thread
from ottla.tiers.packing import PART_BYTES, Packer
from ottla.tiers.partition_index import Run, build_index, epochs_of

if TYPE_CHECKING:
    from ottla.storage.memory.iobuf import IOBuf
    from ottla.storage.state.aborted_transactions import AbortedTransaction
    from ottla.storage.state.leader_epochs import EpochEntry
    from ottla.tiers.object_store import ObjectStore
    from ottla.tiers.rate import ByteRate

__all__ = ["COMMIT_WITHIN_MS", "Upload", "UploadNote", "UploadSource", "UploadedPart", "UploadedSegment"]

COMMIT_WITHIN_MS: Final = 12 * 3_600_000
"""How long an upload may take until its manifests name it: the sweep takes what is older for an orphan, after twice
that.
"""

_PARTS_IN_FLIGHT: Final = 3
_ATTEMPTS: Final = 5
_FIRST_PAUSE_SECONDS: Final = 0.1
_MAX_PAUSE_SECONDS: Final = 5.0


class UploadSource(Protocol):
    """A stretch of one partition's log. All of it is committed, and decided: no open transaction has a record in it."""

    @property
    def partition(self) -> int: ...

    @property
    def base_offset(self) -> int: ...

    @property
    def end_offset(self) -> int:
        """The offset that follows it."""

    @property
    def aborted(self) -> Sequence[AbortedTransaction]:
        """The aborted transactions with records in it, by the offset of their markers."""

    @property
    def producers(self) -> bytes:
        """A snapshot of the producers as of its end; empty if that is not known."""

    async def read(self, offset: int) -> tuple[IOBuf, int]:
        """Whole batches from an offset on, and the offset that follows them. The caller releases them."""


class UploadedPart(NamedTuple):
    """A stored part: its length and its CRC."""

    length: int
    crc: int


class UploadNote(NamedTuple):
    """The note of an unfinished upload, which lets it go on after a restart."""

    upload: UploadId
    began_at_ms: int
    parts: tuple[UploadedPart, ...] = ()

    def to_bytes(self) -> bytes:
        """As JSON."""
        content = {
            "leader_epoch": self.upload.leader_epoch,
            "number": self.upload.number.hex,
            "began_at_ms": self.began_at_ms,
            "parts": self.parts,
        }
        return json.dumps(content).encode()

    @classmethod
    def from_bytes(cls, content: bytes) -> UploadNote | None:
        """The inverse of `to_bytes`; None for other bytes, after which the upload begins again."""
        try:
            fields = json.loads(content)
            upload = UploadId(int(fields["leader_epoch"]), UUID(hex=fields["number"]))
            parts = tuple(UploadedPart(int(length), int(crc)) for length, crc in fields["parts"])
            return cls(upload, int(fields["began_at_ms"]), parts)
        except (ValueError, TypeError, KeyError):
            return None


class UploadedSegment(NamedTuple):
    """One partition's part of an upload: the values for its manifest, and its leader epochs."""

    partition: int
    base_offset: int
    last_offset: int
    max_timestamp_ms: int
    size_bytes: int
    index_position: int
    index_length: int
    index_crc: int
    epochs: Sequence[EpochEntry]


class Upload:
    """Uploads stretches of several partitions' logs as one: run it once.

    At most three parts of 16 MiB are under way, and two more are being filled or wait for that. A part that could not
    be stored ends the upload with the store's error. With the note of its parts it can be taken up again, in this
    process or in the next one: parts that are stored, and that the log still makes in the same way, are not sent again.
    """

    def __init__(
        self,
        store: ObjectStore,
        names: TopicNames,
        rate: ByteRate,
        note: UploadNote,
        *,
        noted: Callable[[UploadNote], object] = lambda note: None,
        offload: Offload = in_a_thread,
        part_bytes: int = PART_BYTES,
    ) -> None:
        """`note` says what is stored already; `noted` is told when that is more."""
        self._store = store
        self._names = names
        self._rate = rate
        self._upload = note.upload
        self._began_at_ms = note.began_at_ms
        self._noted = noted
        self._offload = offload
        self._packer = Packer(part_bytes)
        self._known = note.parts
        self._is_resumed = bool(note.parts)
        #: The sizes of the objects that an earlier attempt has stored.
        self._present: dict[str, int] = {}
        self._stored: dict[int, UploadedPart] = {}
        self._in_flight = trio.Semaphore(_PARTS_IN_FLIGHT)
        #: How many bytes were sent.
        self.sent_bytes = 0

    async def run(self, sources: Sequence[UploadSource]) -> list[UploadedSegment]:
        """Store the stretches, in this order; returns what the manifests may name from now on.

        Raises TierError of the object store, and whatever reading the log raises; CorruptLogError for a batch that is
        damaged. What is stored then is an orphan, unless it is gone on with.
        """
        if self._is_resumed:
            self._present = await self._find_present()
        runs: list[list[Run]] = []
        try:
            async with trio.open_nursery() as nursery:
                for source in sources:
                    runs.append(await self._pack(source, nursery))
                await self._offload(self._packer.end)
                await self._send_full(nursery)
        except* (ApiError, OSError) as group:
            # The first error has cancelled the others.
            raise _first_of(group) from None
        return await self._store_index(sources, runs)

    async def _find_present(self) -> dict[str, int]:
        prefix = self._names.upload_prefix(self._upload)
        present: dict[str, int] = {}
        name = prefix
        while page := await self._store.find(self._names.segments, name):
            present |= {info.name: info.size_bytes for info in page if info.name.startswith(prefix)}
            name = page[-1].name
            if not name.startswith(prefix):
                break
        return present

    async def _pack(self, source: UploadSource, nursery: trio.Nursery) -> list[Run]:
        offset = source.base_offset
        while offset < source.end_offset:
            records, next_offset = await source.read(offset)
            try:
                await self._offload(self._packer.add, list(records), offset, next_offset, source.end_offset)
            finally:
                records.release()
            offset = next_offset
            await self._send_full(nursery)
        return await self._offload(self._packer.end_partition)

    async def _send_full(self, nursery: trio.Nursery) -> None:
        while self._packer.full:
            number, content = self._packer.full.pop(0)
            await self._in_flight.acquire()
            nursery.start_soon(self._send, number, content)

    async def _send(self, number: int, content: bytearray) -> None:
        try:
            name = self._names.part(self._upload, number)
            part = UploadedPart(len(content), await self._offload(crc_of, content))
            is_known = number < len(self._known) and self._known[number] == part
            is_there = is_known and self._present.get(name) == len(content)
            await self._put(name, content, part.crc, is_there=is_there)
            self._note(number, part)
        finally:
            self._in_flight.release()

    def _note(self, number: int, part: UploadedPart) -> None:
        self._stored[number] = part
        stored: list[UploadedPart] = []
        while len(stored) in self._stored:
            stored.append(self._stored[len(stored)])
        if len(stored) >= len(self._known):
            self._noted(UploadNote(self._upload, self._began_at_ms, tuple(stored)))

    async def _store_index(self, sources: Sequence[UploadSource], runs: Sequence[list[Run]]) -> list[UploadedSegment]:
        name = self._names.index(self._upload)
        topic_id = self._names.topic_id
        segments: list[UploadedSegment] = []
        content = bytearray()
        for source, own_runs in zip(sources, runs, strict=True):
            last_offset = source.end_offset - 1
            index = await self._offload(
                build_index,
                topic_id,
                source.partition,
                source.base_offset,
                last_offset,
                own_runs,
                source.aborted,
                source.producers,
            )
            segments.append(
                UploadedSegment(
                    source.partition,
                    source.base_offset,
                    last_offset,
                    max((run.max_timestamp_ms for run in own_runs), default=-1),
                    sum(run.length for run in own_runs),
                    len(content),
                    len(index),
                    await self._offload(crc_of, index),
                    list(epochs_of(own_runs)),
                )
            )
            content += index
        await self._put(name, content, await self._offload(crc_of, content), is_there=False)
        return segments

    async def _put(self, name: str, content: bytearray, crc: int, *, is_there: bool) -> None:
        """Store an object, and read it back: the log's own copy is deleted on the strength of this one.

        An object is written once only. A request that was given up may still reach the store, and must not replace what
        a manifest names by then.
        """
        if not is_there:
            await self._rate.take(len(content))
            await self._create(name, content)
            self.sent_bytes += len(content)
        stored = await self._store.get_range(name, 0, len(content) + 1)
        if len(stored) != len(content) or await self._offload(crc_of, stored) != crc:
            raise CorruptObjectError(f"{name} was stored, and what the store shows is not what it was sent")

    async def _create(self, name: str, content: bytearray) -> None:
        backoff = Backoff(_FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS)
        while True:
            try:
                await self._store.put_if(name, content, ABSENT)
            except PreconditionFailedError:
                return  # an earlier attempt was made after all: what it wrote is looked at
            except ObjectStoreUnavailableError:
                if backoff.failures + 1 >= _ATTEMPTS:
                    raise
            else:
                return
            await backoff.wait()


def _first_of(group: BaseExceptionGroup[Exception]) -> Exception:
    first: BaseException = group
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    assert isinstance(first, Exception)
    return first
