"""The checkpoint of a store: from where recovery must read, and each partition's state up to there.

The partitions' states are those of the moment when a memstore is swapped out, the only one at which all that was
appended is in known blocks: they say "as of block S". Recovery replays blocks from the recovery point on and skips, per
partition, those its state already knows. So no append waits for a checkpoint, and the states of thousands of partitions
are taken in slices; one that is about to change is taken first.
"""

from __future__ import annotations

import struct
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import trio
from google_crc32c import extend
from google_crc32c import value as crc32c

from ottla.storage.errors import CorruptLogError, UnsupportedFormatError
from ottla.storage.format.block import FORMAT_VERSION
from ottla.storage.state.aborted_transactions import AbortedTransactions
from ottla.storage.state.leader_epochs import LeaderEpochs
from ottla.storage.state.producer_snapshot import read_snapshot, write_snapshot

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.storage.log.partition_log import PartitionLog
    from ottla.storage.store.message_store import MessageStore

__all__ = [
    "Checkpoint",
    "CheckpointBuilder",
    "PartitionState",
    "load_state",
    "log_start_of",
    "pack_checkpoint",
    "pack_state",
    "parse_checkpoint",
    "split_state",
]

CHECKPOINT_NAME = "checkpoint"
CHECKPOINT_MAGIC = b"OtChkpnt"
# magic, format version, flags (0), boot id, segment position, data length, next sequence, index length, index CRC,
# partitions
_HEADER = struct.Struct(">8sHH36sQQQQII")
_CRC = struct.Struct(">I")
_ENTRY = struct.Struct(">20sI")
# as of sequence, log start, log end, first dirty offset, size in bytes, then the lengths of epochs, aborted
# transactions, producers
_STATE = struct.Struct(">qqqqqIII")
_SLICE = 64
_PACKED_AT_ONCE = 512


class Checkpoint(NamedTuple):
    """Where recovery begins: everything before `data_length` of the segment at `segment_position` is durable.

    The first `index_length` bytes of that segment's index file are the runs before `data_length`.
    """

    boot_id: str
    segment_position: int
    data_length: int
    next_sequence: int
    index_length: int
    index_crc: int


async def pack_checkpoint(checkpoint: Checkpoint, states: Mapping[bytes, bytes]) -> list[bytes]:
    """The pieces of the checkpoint file, with the states by log key; in slices, so that the event loop is not held."""
    states = dict(states)
    head = _HEADER.pack(
        CHECKPOINT_MAGIC, FORMAT_VERSION, 0, checkpoint.boot_id.encode().ljust(36), *checkpoint[1:], len(states)
    )
    pieces = [head]
    crc = crc32c(head)
    entries = iter(states.items())
    while part := list(islice(entries, _PACKED_AT_ONCE)):
        piece = b"".join([field for key, state in part for field in (_ENTRY.pack(key, len(state)), state)])
        crc = extend(crc, piece)
        pieces.append(piece)
        await trio.lowlevel.checkpoint()
    return [*pieces, _CRC.pack(crc)]


def parse_checkpoint(content: bytes) -> tuple[Checkpoint, dict[bytes, bytes]]:
    """The checkpoint and the states by log key; CorruptLogError if a byte is wrong."""
    if len(content) < _HEADER.size + _CRC.size or content[:8] != CHECKPOINT_MAGIC:
        raise CorruptLogError("not a checkpoint")
    if crc32c(content[: -_CRC.size]) != _CRC.unpack_from(content, len(content) - _CRC.size)[0]:
        raise CorruptLogError("the checkpoint fails its checksum")
    _, version, _, boot_id, *fields, count = _HEADER.unpack_from(content)
    if version != FORMAT_VERSION:
        raise UnsupportedFormatError(f"checkpoint of format version {version}, this is {FORMAT_VERSION}")
    states: dict[bytes, bytes] = {}
    position = _HEADER.size
    for _ in range(count):
        key, length = _ENTRY.unpack_from(content, position)
        position += _ENTRY.size
        states[key] = content[position : position + length]
        position += length
    return Checkpoint(boot_id.decode().strip(), *fields), states


def pack_state(log: PartitionLog, as_of_sequence: int) -> bytes:
    """A partition's state as of a block; nothing of it may be appended to a later one yet."""
    epochs = log.epochs.to_bytes() if len(log.epochs) else b""
    aborted = log.aborted.to_bytes() if log.aborted is not None else b""
    producers = write_snapshot(log.producers) if log.producers is not None else b""
    head = _STATE.pack(
        as_of_sequence,
        log.log_start_offset,
        log.log_end_offset,
        log.first_dirty_offset,
        log.size_bytes,
        len(epochs),
        len(aborted),
        len(producers),
    )
    return b"".join((head, epochs, aborted, producers))


def as_of_sequence(state: bytes) -> int:
    """The sequence of the block up to which a packed state is true."""
    return int(_STATE.unpack_from(state)[0])


def log_start_of(state: bytes) -> int:
    """The log start offset in a packed state."""
    return int(_STATE.unpack_from(state)[1])


class PartitionState(NamedTuple):
    """A packed state's parts, for who only reads: `aborted` and `producers` are empty where there are none."""

    as_of_sequence: int
    log_start_offset: int
    log_end_offset: int
    aborted: bytes
    producers: bytes


def split_state(state: bytes) -> PartitionState:
    """The parts of a packed state, which need no log."""
    as_of, log_start, log_end, _, _, *lengths = _STATE.unpack_from(state)
    aborted_start = _STATE.size + lengths[0]
    aborted_end = aborted_start + lengths[1]
    producers = state[aborted_end : aborted_end + lengths[2]]
    return PartitionState(as_of, log_start, log_end, state[aborted_start:aborted_end], producers)


def load_state(log: PartitionLog, state: bytes) -> int:
    """Restore what `pack_state` took; returns the sequence of the block up to which it is true."""
    as_of, log.log_start_offset, log.log_end_offset, log.first_dirty_offset, log.size_bytes, *lengths = (
        _STATE.unpack_from(state)
    )
    epochs_end = _STATE.size + lengths[0]
    aborted_end = epochs_end + lengths[1]
    if lengths[0]:
        log.epochs = LeaderEpochs.from_bytes(state[_STATE.size : epochs_end])
    if lengths[1]:
        log.aborted = AbortedTransactions.from_bytes(state[epochs_end:aborted_end])
    if lengths[2]:
        log.producers = read_snapshot(state[aborted_end : aborted_end + lengths[2]])
    log.flushed_end_offset = log.high_watermark = log.log_end_offset
    return int(as_of)


class CheckpointBuilder:
    """A checkpoint under way: the states of the partitions that have changed, all as of one block.

    It is armed when a memstore is swapped out: from then on a partition's state is taken before it changes again, by
    `capture`, or in its turn, by `take_all`. What the states speak of is durable only after a sync that begins then.
    `is_abandoned` is set when the store stops.
    """

    __slots__ = ("_as_of", "_remaining", "armed", "is_abandoned", "taken")

    def __init__(self, store: MessageStore) -> None:
        self._remaining = store.dirty
        store.dirty = {}
        self._as_of = -1
        self.taken: dict[bytes, bytes] = {}
        self.armed = trio.Event()
        self.is_abandoned = False

    def arm(self, as_of_sequence: int) -> None:
        """All that was appended up to now is in blocks up to this one."""
        self._as_of = as_of_sequence
        self.armed.set()

    def abandon(self) -> None:
        """The store has stopped: nothing comes of this checkpoint."""
        self.is_abandoned = True
        self.armed.set()

    def capture(self, log: PartitionLog) -> None:
        """Take the state of a log that is about to change, if it has not been taken yet."""
        if self.armed.is_set() and log in self._remaining:
            del self._remaining[log]
            self.taken[log.key] = pack_state(log, self._as_of)

    @property
    def left(self) -> dict[PartitionLog, None]:
        """The logs whose state was not taken."""
        return self._remaining

    async def take_all(self) -> None:
        """Take all other states, in slices, so that the event loop is not held."""
        await self.armed.wait()
        while self._remaining and not self.is_abandoned:
            for log in list(islice(self._remaining, _SLICE)):
                if log.is_closed:
                    del self._remaining[log]
                else:
                    self.capture(log)
            await trio.lowlevel.checkpoint()
