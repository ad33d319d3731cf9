"""Opening stores: many are recovered by one call of a worker thread, and then serve, one after the other."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from ottla.storage.disk.passing import RETRY_SECONDS, is_out_of_descriptors
from ottla.storage.errors import StorageError
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.start.recovery import Recovery
from ottla.storage.store.maintenance import Maintenance, checkpoint_after_loss

if TYPE_CHECKING:
    from ottla.storage.reading.reader import Reader
    from ottla.storage.store.context import StorageContext
    from ottla.storage.store.message_store import MessageStore

__all__ = ["begin_to_serve", "recover_stores"]

logger = logging.getLogger(__name__)

_ATTEMPTS: Final = 100

Outcome = Recovery | StorageError | OSError
"""What was found in the files of a store, or why that is not known."""


async def recover_stores(context: StorageContext, reader: Reader, stores: Sequence[MessageStore]) -> list[Outcome]:
    """Recover stores, from the beginning again while there are no descriptors; what failed of one stops no other."""
    outcomes: dict[MessageStore, Outcome] = {}
    left = list(stores)
    for attempt in range(_ATTEMPTS):
        if attempt:
            context.shed_descriptors()
            await trio.sleep(RETRY_SECONDS)
        recoveries = [_recovery_of(context, reader, store) for store in left]
        outcomes |= zip(left, await context.offload(_run_all, recoveries), strict=True)
        left = [store for store in left if _lacks_descriptors(outcomes[store])]
        if not left:
            break
    return [outcomes[store] for store in stores]


def _recovery_of(context: StorageContext, reader: Reader, store: MessageStore) -> Recovery:
    new_log = partial(PartitionLog, store, reader)
    return Recovery(context.disk, context.clock, context.boot_id, store.files.directory, new_log)


def _run_all(recoveries: Sequence[Recovery]) -> list[Outcome]:
    """Blocks."""
    return [_run(recovery) for recovery in recoveries]


def _run(recovery: Recovery) -> Outcome:
    try:
        recovery.run()
    except (StorageError, OSError) as error:
        return error
    return recovery


def _lacks_descriptors(outcome: Outcome) -> bool:
    return isinstance(outcome, OSError) and is_out_of_descriptors(outcome)


async def begin_to_serve(store: MessageStore, recovery: Recovery, maintenance: Maintenance) -> None:
    """Hand a store what was found, and make up for what is lost. Raises StorageError or OSError, and the store is
    closed, if that cannot be done.
    """
    for loss in recovery.losses:
        store.context.damage.found(loss.path, loss.position, loss.message)
    recovery.hand_over(store)
    try:
        await _make_up_for_losses(store, recovery, maintenance)
    except BaseException:
        # The waits are for calls of the disk that have begun.
        with trio.CancelScope(shield=True):
            await store.close()
        raise


async def _make_up_for_losses(store: MessageStore, recovery: Recovery, maintenance: Maintenance) -> None:
    if recovery.has_lost:
        store.lost_something()
        if not recovery.is_marked:
            lost = f"what is lost of {store.files.directory} cannot be noted"
            store.context.space.require(lost, recovery.mark)
    for log in recovery.logs.lost:
        known_end = log.log_end_offset
        await log.find_end()
        if log.log_end_offset < known_end:
            logger.error("%s: offsets up to %d are lost, the log ends early", log, known_end - 1)
    for log in recovery.logs.stale:
        await log.rebuild_producers()
    for log in [*recovery.logs.cut, *recovery.logs.lost]:
        await log.count_size()
    if recovery.logs.lost:
        # A checkpoint begins in a segment that is written to, and recovery has sealed all.
        next(iter(recovery.logs.lost)).note_log_start()
        await checkpoint_after_loss(store)
    elif recovery.replayed_bytes or recovery.logs.stale:
        maintenance.request(store)
