"""Finding where sound batches go on after damage inside a run: lengths there cannot be believed."""

from __future__ import annotations

from ottla.kproto.errors import ProtocolError
from ottla.kproto.records import parse_batch_header, verify_crc

__all__ = ["next_sound_batch"]

_HEADER_BYTES = 61
_MAGIC_POS = 16
_MAGIC = b"\x02"


def next_sound_batch(
    memory: memoryview, start: int, offset: int, last_offset: int, *, leader_epoch: int, damaged: int
) -> tuple[int, int] | None:
    """(position, base offset) of the first whole batch from `start` on whose checksum is right and which ends there.

    It ends at `offset` or later, not after `last_offset`, and is of this epoch. The one at the position `damaged` is
    none: its checksum may be right, as it does not cover all of the header. Reads every byte in the worst case: of one
    run, and only where damage was met.
    """
    content = bytes(memory[start:])
    at = content.find(_MAGIC, _MAGIC_POS)
    while at >= 0:
        pos = start + at - _MAGIC_POS
        if pos + _HEADER_BYTES > len(memory):
            return None
        try:
            batch = parse_batch_header(memory, pos)
            is_wanted = offset <= batch.last_offset <= last_offset and batch.leader_epoch == leader_epoch
            if is_wanted and pos != damaged:
                verify_crc(memory, pos, batch)
                return pos, batch.base_offset
        except ProtocolError:
            pass
        at = content.find(_MAGIC, at + 1)
    return None
