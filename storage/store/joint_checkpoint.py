"""Checkpoints of many stores at once, made durable by syncs of the whole file system instead of eight for each store.

Only what is quiet is taken: stores that are at rest, with one segment. All others are left to `maintain`. The order is
that of a single checkpoint: what the checkpoints speak of is durable before any of them is in its place.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final

from ottla.storage.errors import StorageError
from ottla.storage.store.checkpoint_files import CheckpointFiles, take_checkpoint

if TYPE_CHECKING:
    from ottla.storage.node_dir import NodeDir
    from ottla.storage.store.context import StorageContext
    from ottla.storage.store.message_store import MessageStore

__all__ = ["JointCheckpoint"]

#: So many hold their locks at a time.
_MAX_HELD: Final = 1_000
#: No more checkpoints are taken into memory once they have this much together.
_MEMORY_BYTES: Final = 32 << 20


class JointCheckpoint:
    """Checkpoints of many stores, made durable by one call for the whole folder of the node."""

    def __init__(self, context: StorageContext, node_dir: NodeDir) -> None:
        self._context = context
        self._node_dir = node_dir

    async def take(self, stores: Sequence[MessageStore]) -> None:
        """Bring those to the disk that are at rest. One whose files cannot be written stays as it was."""
        try:
            is_possible = await self._context.offload(self._node_dir.sync_all)
        except OSError:
            return  # whose data it was, the sync of each store says
        if is_possible:
            left = deque(stores)
            while left:
                async with AsyncExitStack() as held:
                    await self._take_some(held, left)

    async def _take_some(self, held: AsyncExitStack, left: deque[MessageStore]) -> None:
        taken = []
        size_bytes = 0
        for _ in range(min(len(left), _MAX_HELD)):
            if size_bytes >= _MEMORY_BYTES:
                break
            store = left.popleft()
            try:
                # The lock first: a deletion of the store holds it while waiting for the gate.
                await held.enter_async_context(store.lock)
                held.enter_context(store.gate)
                checkpoint = await take_checkpoint(store, makes_room=False) if _is_quiet(store) else None
            except StorageError:
                continue  # there is no room, or it has stopped: `maintain` sees to it
            if checkpoint is not None:
                taken.append(checkpoint)
                size_bytes += checkpoint.size_bytes
        try:
            written = await self._context.offload(self._write, taken)
        except OSError as error:
            # Nobody knows whose data was lost.
            for checkpoint in taken:
                checkpoint.store.fail(error)
            return
        for checkpoint in taken:
            if checkpoint in written:
                checkpoint.written()
            else:
                checkpoint.drop()

    def _write(self, taken: Sequence[CheckpointFiles]) -> set[CheckpointFiles]:
        """Returns those that are durable. OSError if a sync has failed. Blocks."""
        beside = {each for each in taken if _succeeds(each.write_unsynced)}
        self._require_synced()
        in_place = {each for each in beside if _succeeds(each.put_in_place)}
        self._require_synced()
        return in_place

    def _require_synced(self) -> None:
        if not self._node_dir.sync_all():
            raise OSError(errno.EIO, "the file system can no longer be synced as a whole")


def _succeeds(step: Callable[[], None]) -> bool:
    try:
        step()
    except OSError:
        return False
    return True


def _is_quiet(store: MessageStore) -> bool:
    """Whether a checkpoint is all that is to be done: nothing is under way, and nothing was ever sealed."""
    files = store.files
    is_at_rest = store.is_usable and store.checkpoint is None and not store.writer.has_work
    return is_at_rest and len(files.segments) == 1 and not (files.has_sealed or files.retired or files.list_content)
