"""The store of the cluster's metadata: a small, strongly consistent map with revisions.

Every change is one transaction and one revision, a number that only grows. `MetadataStore` is what etcd offers,
cut down to what a broker needs; SQLite stands in for etcd on one machine, and a dictionary in tests.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final, NamedTuple, Protocol

#: A watcher that falls behind by this many transactions gets WatchLaggedError and lists again.
WATCH_BUFFER: Final = 1_000

#: The lease of keys that stay until they are deleted.
NO_LEASE: Final = 0


class KeyValue(NamedTuple):
    """A key with its value. `create_revision` is that of the transaction since which the key has existed
    without a break, `mod_revision` that of its last change."""

    key: str
    value: bytes
    create_revision: int
    mod_revision: int
    lease: int = NO_LEASE


class Compare(NamedTuple):
    """A condition of a transaction: the key's `mod_revision` is this; 0 means that the key is absent."""

    key: str
    mod_revision: int


class Put(NamedTuple):
    """Set a key, and tie it to a lease if one is named."""

    key: str
    value: bytes
    lease: int = NO_LEASE


class Delete(NamedTuple):
    """Remove a key, which may be absent."""

    key: str


class DeletePrefix(NamedTuple):
    """Remove every key that begins with `prefix`."""

    prefix: str


Operation = Put | Delete | DeletePrefix


class Listing(NamedTuple):
    """All keys under a prefix, sorted, as they were at `revision`, from where they can be watched.

    `committed` is the revision of the latest change of any key. It may be less than `revision`: other programs may use
    the same etcd, and raise its revision.
    """

    revision: int
    entries: tuple[KeyValue, ...]
    committed: int


class Change(NamedTuple):
    """One transaction's changes under a watched prefix: the keys set, as they are now, and those removed."""

    revision: int
    puts: tuple[KeyValue, ...]
    deletes: tuple[str, ...]


class Watch(Protocol):
    """A subscription to changes, in order and without a gap."""

    async def receive(self) -> Change:
        """Wait for the next change; raises WatchLaggedError when the watcher has to list again."""


class MetadataStore(Protocol):
    """The store's contract; `tests/metastore/test_store_contract.py` holds every implementation to it.

    Reads see every transaction that was answered before. A transaction happens entirely or not at all, and
    is durable before it is answered. All methods raise StoreUnavailableError if the store cannot be reached;
    whether an unanswered transaction happened is then unknown, and the caller reads again.
    """

    async def get(self, key: str) -> KeyValue | None:
        """The key, or None."""

    async def list(self, prefix: str) -> Listing:
        """All keys that begin with `prefix`, at one revision."""

    async def commit(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> int | None:
        """If every compare holds, do all operations and return the new revision; else change nothing and
        return None. Operations of one transaction name distinct keys, and none below a prefix that is deleted.

        Raises LeaseExpiredError if a lease has ended, PolicyViolationError if the store cannot take so much at once.
        """

    def watch(self, prefix: str, after_revision: int) -> AbstractAsyncContextManager[Watch]:
        """Follow the changes under `prefix` that are later than `after_revision`, which `list` has returned."""

    async def grant_lease(self, ttl_ms: int) -> int:
        """A new lease: its keys are deleted if it is not kept alive for `ttl_ms`."""

    async def keep_alive(self, lease: int) -> None:
        """Start the lease's time again; raises LeaseExpiredError if it has ended."""

    async def revoke_lease(self, lease: int) -> None:
        """End the lease and delete its keys; a lease that has ended is not an error."""

    async def close(self) -> None:
        """Release what the store holds; every watcher ends with StoreUnavailableError."""
