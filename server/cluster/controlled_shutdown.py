"""A node that leaves the in-sync sets: before it stops, or because it may have lost what it had."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from ottla.metadata import keys
from ottla.metadata.changes.eligible_leaders import min_in_sync
from ottla.metadata.changes.partition_changes import hand_over, leave
from ottla.metadata.changes.partition_transactions import changes_of_all, in_transactions, plan_changes
from ottla.metadata.image import MetadataImage
from ottla.metadata.image_delta import evolve
from ottla.metastore.errors import ConflictError
from ottla.metastore.store import Compare, Put

if TYPE_CHECKING:
    from ottla.metadata.controller import Controller
    from ottla.metastore.store import MetadataStore
    from ottla.settings.config import BrokerConfig

logger = logging.getLogger(__name__)

_MAX_ATTEMPTS: Final = 20


async def hand_over_partitions(controller: Controller) -> None:
    """Let others lead what this node leads and do without it, as far as others are in sync (controlled shutdown).

    This node must have stopped following: no leader then sees it caught up, and adds it to an in-sync set again.
    """
    if len(controller.image.brokers) > 1:
        await controller.renew_registration()
    changes = await changes_of_all(controller.image, hand_over, controller.node_id)
    if changes:
        await controller.change_partitions(changes)
        logger.info("%d partitions go on without this node", len(changes), extra={"partitions": len(changes)})


async def leave_after_loss(
    store: MetadataStore,
    config: BrokerConfig,
    directory_id: str,
    *,
    lost_power: bool,
    starts: int | None = None,
    restoration: str | None = None,
) -> bool:
    """Leave the in-sync sets, and stop being an eligible leader, if what this node had written may be gone: its folder
    is a different one, or an older copy that has seen only so many `starts` or comes from a `restoration` that the
    metadata does not, or the machine went down before everything was on the disk (KIP-966; Kafka compares the broker
    epoch of the last orderly stop).

    Must be called before anything is served. First the registration is renewed, so that a leader that is about to count
    the previous process as in sync finds that it is gone (KIP-903).
    """
    node_id = config.node_id
    key = keys.broker(node_id)
    for _ in range(_MAX_ATTEMPTS):
        entry = await store.get(key)
        if entry is None:
            return lost_power
        registered = keys.decode_broker(key, entry.value, entry.mod_revision)
        is_older = await _is_older(store, node_id, starts, restoration)
        if not lost_power and not is_older and registered.directory_id in ("", directory_id):
            return False
        if await store.commit([Compare(key, entry.mod_revision)], [Put(key, entry.value)]) is None:
            continue
        if await _leave(store, config):
            return True
    raise ConflictError("The in-sync sets keep being changed elsewhere.")


async def _is_older(store: MetadataStore, node_id: int, starts: int | None, restoration: str | None) -> bool:
    """Whether the folder is an older one than the metadata."""
    if restoration is not None:
        entry = await store.get(keys.RESTORATION)
        if entry is None or keys.decode(entry.value) != restoration:
            return True
    return starts is not None and starts < await _counted_starts(store, node_id)


async def _counted_starts(store: MetadataStore, node_id: int) -> int:
    entry = await store.get(keys.starts(node_id))
    return 0 if entry is None else int(keys.decode(entry.value))


async def _leave(store: MetadataStore, config: BrokerConfig) -> bool:
    """Leave every set; False if somebody else has changed one meanwhile."""
    node_id = config.node_id
    listing = await store.list("")
    image = evolve(MetadataImage(), listing.revision, listing.entries, ()).after
    revisions = {entry.key: entry.mod_revision for entry in listing.entries}
    changes = await changes_of_all(image, leave, node_id)
    for part in in_transactions(changes):
        compares, operations, _ = plan_changes(
            part, image, lambda key: revisions.get(key, 0), min_in_sync(image, config)
        )
        if await store.commit(compares, operations) is None:
            return False
    alone = sum(state.isr == (node_id,) for topic in image.topics.values() for state in topic.partitions)
    logger.warning(
        "what this node had written may be gone: it leaves the in-sync sets of %d partitions; of %d it has the only "
        "replica in sync, and what is gone of those is lost",
        len(changes),
        alone,
        extra={"partitions": len(changes), "alone": alone},
    )
    return True
