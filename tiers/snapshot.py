"""A snapshot: a small object beside those of the topics, with what a cluster needs besides its tiered records.

It is written again and again by compare-and-swap. The format, version 1, big-endian, CRC means CRC-32C:

    8 bytes   "OtTierSn"
    u16       format version
    u16       flags, 0
    u32       generation: how many times a cluster was restored from these objects
    u64       rank: of two writers of one generation the one with the higher rank is right
    i64       when it was written, in milliseconds since 1970, by the writer's clock
    u32       length of the content before it was compressed
              content, compressed by zlib
    u32       CRC of all before it
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Awaitable, Callable
from hashlib import sha256
from typing import Final, NamedTuple

from ottla.kproto.records.crc import value as crc_of
from ottla.tiers.errors import (
    CorruptObjectError,
    FencedUploadError,
    ObjectMissingError,
    ObjectStoreUnavailableError,
    PreconditionFailedError,
    SnapshotTooLargeError,
    SupersededError,
    UnknownFormatError,
)
from ottla.tiers.object_store import ABSENT, ObjectStore
from ottla.tiers.offload import Offload, in_a_thread

__all__ = ["MAX_SNAPSHOT_BYTES", "Snapshot", "SnapshotFile", "read_generation"]

MAX_SNAPSHOT_BYTES: Final = 67_108_864
"""How much content a snapshot has at most, before it is compressed."""

_MAGIC: Final = b"OtTierSn"
_FORMAT_VERSION: Final = 1
_HEADER: Final = struct.Struct(">8sHHIQqI")
_CRC: Final = struct.Struct(">I")
_ATTEMPTS: Final = 3


class Snapshot(NamedTuple):
    """See the module."""

    generation: int
    rank: int
    written_at_ms: int
    content: bytes

    def to_bytes(self) -> bytes:
        """The object's bytes. Raises SnapshotTooLargeError if it is longer than a reader accepts."""
        if len(self.content) > MAX_SNAPSHOT_BYTES:
            raise SnapshotTooLargeError(f"{len(self.content)} bytes are more than {MAX_SNAPSHOT_BYTES}")
        header = _HEADER.pack(
            _MAGIC, _FORMAT_VERSION, 0, self.generation, self.rank, self.written_at_ms, len(self.content)
        )
        whole = header + zlib.compress(self.content, 1)
        return whole + _CRC.pack(crc_of(whole))

    @classmethod
    def from_bytes(cls, data: bytes, name: str) -> Snapshot:
        """The inverse of `to_bytes`. Raises CorruptObjectError, or UnknownFormatError if it is of a later release."""
        generation, rank, written_at_ms, length = _header(data, name)
        if len(data) < _HEADER.size + _CRC.size or length > MAX_SNAPSHOT_BYTES:
            raise CorruptObjectError(f"{name} is too short, or says that it is too long")
        if crc_of(memoryview(data)[: -_CRC.size]) != _CRC.unpack_from(data, len(data) - _CRC.size)[0]:
            raise CorruptObjectError(f"{name} does not have its checksum")
        try:
            content = zlib.decompressobj().decompress(data[_HEADER.size : -_CRC.size], length + 1)
        except zlib.error as error:
            raise CorruptObjectError(f"{name} cannot be decompressed: {error}") from error
        if len(content) != length:
            raise CorruptObjectError(f"{name} has {len(content)} bytes, not {length}")
        return cls(generation, rank, written_at_ms, content)


class _Present(NamedTuple):
    """The present object, without its content."""

    version: str
    generation: int
    rank: int
    digest: bytes


class SnapshotFile:
    """Writes one snapshot whenever it has changed. Not for several tasks at a time."""

    def __init__(self, store: ObjectStore, name: str, *, offload: Offload = in_a_thread) -> None:
        self._store = store
        self._name = name
        self._offload = offload
        self._present: _Present | None = None

    async def read(self) -> Snapshot | None:
        """The present snapshot; None if there is none. Raises TierError."""
        try:
            found = await self._store.get(self._name)
        except ObjectMissingError:
            self._present = _Present(ABSENT, 0, 0, b"")
            return None
        snapshot = await self._offload(Snapshot.from_bytes, found.content, self._name)
        self._present = _Present(found.version, snapshot.generation, snapshot.rank, _digest(snapshot.content))
        return snapshot

    async def write(self, generation: int, rank: int, now_ms: int, collect: Callable[[], Awaitable[bytes]]) -> bool:
        """Write what `collect` returns, unless the same is there already, or both are nothing; whether it was written.

        `collect` is called after it is known what is there, so of two writers of one rank the one who collects later
        is the one who wins. Raises SupersededError, FencedUploadError if somebody with a higher rank has written, or
        another TierError; and what `collect` raises.
        """
        for _ in range(_ATTEMPTS):
            if self._present is None:
                await self.read()
            present = self._present
            assert present is not None
            if present.generation > generation:
                raise SupersededError(f"{self._name} was written by a cluster that was restored from these objects")
            if present.generation == generation and present.rank > rank:
                raise FencedUploadError(f"{self._name} was written in {present.rank}, after {rank}")
            content = await collect()
            if not content and present.version == ABSENT:
                return False
            known = _Present(present.version, generation, rank, await self._offload(_digest, content))
            if known == present:
                return False
            data = await self._offload(Snapshot(generation, rank, now_ms, content).to_bytes)
            # Until it is answered, and if it never is, nobody knows what is there.
            self._present = None
            try:
                version = await self._store.put_if(self._name, data, present.version)
            except PreconditionFailedError:
                continue
            self._present = known._replace(version=version)
            return True
        raise ObjectStoreUnavailableError(f"{self._name} could not be written: somebody else was quicker each time")

    async def take_over(self, generation: int, now_ms: int, content: bytes) -> None:
        """Begin a generation, if what is there is still what was read. `content` must be nobody else's.

        Raises SupersededError if somebody else has written since, or another TierError: then it may have been written.
        """
        assert self._present is not None, "read first"
        data = await self._offload(Snapshot(generation, 0, now_ms, content).to_bytes)
        try:
            await self._store.put_if(self._name, data, self._present.version)
        except (PreconditionFailedError, ObjectStoreUnavailableError):
            found = await self.read()
            if found is None or (found.generation, found.content) != (generation, content):
                raise SupersededError(f"{self._name} was written by somebody else meanwhile") from None


async def read_generation(store: ObjectStore, name: str) -> int:
    """The generation of a snapshot, 0 if there is none. Raises TierError."""
    try:
        return _header(bytes(await store.get_range(name, 0, _HEADER.size)), name)[0]
    except ObjectMissingError:
        return 0


def _header(data: bytes, name: str) -> tuple[int, int, int, int]:
    if len(data) < _HEADER.size or data[:8] != _MAGIC:
        raise CorruptObjectError(f"{name} is no snapshot")
    _, version, flags, generation, rank, written_at_ms, length = _HEADER.unpack_from(data)
    if version != _FORMAT_VERSION or flags:
        raise UnknownFormatError(f"{name} has format version {version}")
    return generation, rank, written_at_ms, length


def _digest(content: bytes) -> bytes:
    return sha256(content).digest()
