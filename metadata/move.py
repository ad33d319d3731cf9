"""Moving a cluster's metadata from one store to another, while no node runs.

From then on the old store says where the metadata has gone; the new store, until it is complete, says that it is not.
No node starts on either (`refuse_moved`). A move that was killed is finished by moving again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from ottla.metadata import keys
from ottla.metadata.errors import MoveRefusedError
from ottla.metastore.errors import StoreUnavailableError
from ottla.metastore.store import NO_LEASE, Compare, Delete, KeyValue, Listing, MetadataStore, Operation, Put

_BATCH_BYTES: Final = 256 * 1024
_BATCH_KEYS: Final = 1_000

_TO: Final = "to"
_FROM: Final = "from"


class Place(NamedTuple):
    """A store, and its name for people, which is the same each time."""

    store: MetadataStore
    name: str


async def move(source: Place, target: Place) -> int:
    """Move everything but what is on leases; returns how many keys. Raises MoveRefusedError if that must not be."""
    entries = _by_key(await source.store.list(""))
    await _check(source, target, entries)
    moved = entries.get(keys.MOVED)
    leaving = Put(keys.MOVED, keys.encode({_TO: target.name}))
    if await source.store.commit([Compare(keys.MOVED, moved.mod_revision if moved else 0)], [leaving]) is None:
        raise MoveRefusedError(f"Somebody else is moving the metadata in {source.name}.")
    # No node can begin a session there any more; one may just have done so.
    entries = _by_key(await source.store.list(""))
    try:
        _refuse_sessions(source, entries)
    except MoveRefusedError:
        await source.store.commit([], [Delete(keys.MOVED)])
        raise
    kept = {key: it.value for key, it in entries.items() if it.lease == NO_LEASE and key != keys.MOVED}
    await _fill(source, target, kept)
    return len(kept)


async def refuse_moved(store: MetadataStore) -> None:
    """Raises StoreUnavailableError if the cluster's metadata is no longer in this store, or not yet."""
    entry = await store.get(keys.MOVED)
    if entry is None:
        return
    document = keys.decode(entry.value)
    if _TO in document:
        raise StoreUnavailableError(
            f"The metadata of this cluster has moved to {document[_TO]}: start with that, or move it back with "
            "`ottla cluster move-metadata`."
        )
    raise StoreUnavailableError(
        f"The metadata is on its way here from {document[_FROM]}: let `ottla cluster move-metadata` finish, or "
        "run it again."
    )


async def _check(source: Place, target: Place, entries: Mapping[str, KeyValue]) -> None:
    if source.name == target.name:
        raise MoveRefusedError(f"The metadata is in {source.name}.")
    if keys.CLUSTER_ID not in entries:
        raise MoveRefusedError(f"{source.name} holds no cluster.")
    state = _state(entries)
    if state.get(_TO, target.name) != target.name:
        raise MoveRefusedError(f"The metadata has moved from {source.name} to {state[_TO]} already.")
    if _FROM in state:
        raise MoveRefusedError(f"The metadata in {source.name} is not complete: it comes from {state[_FROM]}.")
    _refuse_sessions(source, entries)
    there = _by_key(await target.store.list(""))
    _refuse_sessions(target, there)
    state = _state(there)
    is_former_home = _TO in state and there[keys.CLUSTER_ID].value == entries[keys.CLUSTER_ID].value
    if there and not is_former_home and state.get(_FROM) != source.name:
        raise MoveRefusedError(f"{target.name} holds a cluster, or a part of one, but must be empty.")


def _refuse_sessions(place: Place, entries: Mapping[str, KeyValue]) -> None:
    alive = [key.removeprefix(keys.ALIVE) for key in entries if key.startswith(keys.ALIVE)]
    if alive:
        raise MoveRefusedError(
            f"Node {', '.join(alive)} of {place.name} is running: stop every node first. One that was killed counts as "
            "running until its session has ended (broker.session.timeout.ms)."
        )


async def _fill(source: Place, target: Place, kept: Mapping[str, bytes]) -> None:
    store = target.store
    await store.commit([], [Put(keys.MOVED, keys.encode({_FROM: source.name}))])
    old: list[Operation] = [Delete(key) for key in _by_key(await store.list("")) if key != keys.MOVED]
    new: list[Operation] = [Put(key, value) for key, value in kept.items()]
    for batch in (*_batches(old), *_batches(new)):
        await store.commit([], batch)
    there = {key: entry.value for key, entry in _by_key(await store.list("")).items() if key != keys.MOVED}
    if there != kept:
        raise MoveRefusedError(f"Somebody else is writing to {target.name}: move again when nobody is.")
    await store.commit([], [Delete(keys.MOVED)])


def _batches(operations: Sequence[Operation]) -> Iterator[list[Operation]]:
    batch: list[Operation] = []
    size_bytes = 0
    for operation in operations:
        own_bytes = len(operation.value) if isinstance(operation, Put) else 0
        if batch and (len(batch) >= _BATCH_KEYS or size_bytes + own_bytes > _BATCH_BYTES):
            yield batch
            batch, size_bytes = [], 0
        batch.append(operation)
        size_bytes += own_bytes
    if batch:
        yield batch


def _by_key(listing: Listing) -> dict[str, KeyValue]:
    return {entry.key: entry for entry in listing.entries}


def _state(entries: Mapping[str, KeyValue]) -> dict[str, str]:
    entry = entries.get(keys.MOVED)
    return {} if entry is None else keys.decode(entry.value)
