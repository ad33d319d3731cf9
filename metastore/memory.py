"""The metadata store in memory: for tests, for simulations and for a broker that keeps nothing on disk."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import trio

from ottla.metastore.errors import LeaseExpiredError
from ottla.metastore.store import (
    NO_LEASE,
    Change,
    Compare,
    Delete,
    DeletePrefix,
    KeyValue,
    Listing,
    Operation,
    Put,
    Watch,
)
from ottla.metastore.watchers import Watcher, Watchers


class MemoryMetadataStore:
    """A `MetadataStore` in a dictionary. Leases end on the given clock, which is Trio's by default; watchers see that
    in time."""

    def __init__(self, time_ms: Callable[[], int] | None = None) -> None:
        self._entries: dict[str, KeyValue] = {}
        self._revision = 0
        self._watchers = Watchers()
        self._leases: dict[int, tuple[int, int]] = {}
        self._next_lease = 1
        self._now_ms = time_ms or (lambda: int(trio.current_time() * 1000))

    async def get(self, key: str) -> KeyValue | None:
        await trio.lowlevel.checkpoint()
        self.expire()
        return self._entries.get(key)

    async def list(self, prefix: str) -> Listing:
        await trio.lowlevel.checkpoint()
        self.expire()
        return Listing(self._revision, tuple(self._entries[key] for key in self._keys(prefix)), self._revision)

    async def commit(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> int | None:
        await trio.lowlevel.checkpoint()
        self.expire()
        for compare in compares:
            entry = self._entries.get(compare.key)
            if (0 if entry is None else entry.mod_revision) != compare.mod_revision:
                return None
        for operation in operations:
            if isinstance(operation, Put) and operation.lease and operation.lease not in self._leases:
                raise LeaseExpiredError(f"Lease {operation.lease} has ended.")
        return self._apply(operations)

    @asynccontextmanager
    async def watch(self, prefix: str, after_revision: int) -> AsyncIterator[Watch]:
        with self._watchers.open(prefix, after_revision) as watcher:
            yield _ExpiringWatch(self, watcher)

    def expire(self) -> float:
        """End the leases whose time has come; returns how many seconds the next one has, or infinity."""
        now_ms = self._now_ms()
        ended = {lease for lease, (_, deadline) in self._leases.items() if deadline <= now_ms}
        for lease in ended:
            del self._leases[lease]
        if ended:
            self._drop_keys_of(ended)
        return min((deadline - now_ms for _, deadline in self._leases.values()), default=math.inf) / 1000

    async def grant_lease(self, ttl_ms: int) -> int:
        await trio.lowlevel.checkpoint()
        lease, self._next_lease = self._next_lease, self._next_lease + 1
        self._leases[lease] = (ttl_ms, self._now_ms() + ttl_ms)
        return lease

    async def keep_alive(self, lease: int) -> None:
        await trio.lowlevel.checkpoint()
        self.expire()
        if lease not in self._leases:
            raise LeaseExpiredError(f"Lease {lease} has ended.")
        ttl_ms, _ = self._leases[lease]
        self._leases[lease] = (ttl_ms, self._now_ms() + ttl_ms)

    async def revoke_lease(self, lease: int) -> None:
        await trio.lowlevel.checkpoint()
        if self._leases.pop(lease, None) is not None:
            self._drop_keys_of({lease})

    async def close(self) -> None:
        await trio.lowlevel.checkpoint()
        self._watchers.close()

    def _keys(self, prefix: str) -> Sequence[str]:
        return sorted(key for key in self._entries if key.startswith(prefix))

    def _apply(self, operations: Sequence[Operation]) -> int:
        puts: list[KeyValue] = []
        deletes: list[str] = []
        revision = self._revision + 1
        for operation in operations:
            if isinstance(operation, Put):
                old = self._entries.get(operation.key)
                created = revision if old is None else old.create_revision
                entry = KeyValue(operation.key, operation.value, created, revision, operation.lease)
                self._entries[operation.key] = entry
                puts.append(entry)
            else:
                doomed = self._keys(operation.prefix) if isinstance(operation, DeletePrefix) else (operation.key,)
                deletes += [key for key in doomed if self._entries.pop(key, None) is not None]
        self._revision = revision
        self._watchers.publish(revision, puts, deletes)
        return revision

    def _drop_keys_of(self, leases: set[int]) -> None:
        doomed = sorted(entry.key for entry in self._entries.values() if entry.lease in leases - {NO_LEASE})
        if doomed:
            self._apply([Delete(key) for key in doomed])


class _ExpiringWatch:
    """A watch that also sees which leases end."""

    def __init__(self, store: MemoryMetadataStore, watcher: Watcher) -> None:
        self._store = store
        self._watcher = watcher

    async def receive(self) -> Change:
        while True:
            with trio.move_on_after(self._store.expire()):
                return await self._watcher.receive()
