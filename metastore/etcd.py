"""The metadata store in etcd, for nodes on several machines: over etcd's JSON gateway, with httpx.

Revisions are etcd's own, and so are transactions and leases. `etcd_encoding` says what an Ottla cluster writes, and how
that fits into etcd's limits.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from math import ceil
from typing import Any, Final

import trio

from ottla.metastore.address import EtcdAddress
from ottla.metastore.errors import ConflictError, LeaseExpiredError, MetadataError, StoreUnavailableError
from ottla.metastore.etcd_client import LARGE_BYTES, EtcdAccess, EtcdClient, EtcdError, refused
from ottla.metastore.etcd_encoding import FORMAT, MAX_OPERATIONS, Keys
from ottla.metastore.etcd_watch import EtcdWatch
from ottla.metastore.store import NO_LEASE, Compare, KeyValue, Listing, Operation, Put, Watch

_PAGE_KEYS: Final = 1_000
_MAX_ATTEMPTS: Final = 20
#: How many comparisons may go with a tree of operations.
_FEW_COMPARES: Final = 40
#: A transaction of more operations and comparisons is prepared in a worker thread.
_MANY_OPERATIONS: Final = 50

_LEASE_NOT_FOUND: Final = "requested lease not found"
_TXN: Final = "/v3/kv/txn"
_RANGE: Final = "/v3/kv/range"


class EtcdMetadataStore:
    """A `MetadataStore` in etcd; made by `open_etcd_store`. Leases there last whole seconds, and at least two."""

    def __init__(self, client: EtcdClient, root: str) -> None:
        self._client = client
        self._root = root
        self._keys = Keys(root)
        self._watches: set[EtcdWatch] = set()
        self._closed = False

    async def get(self, key: str) -> KeyValue | None:
        answer = await self._read(_RANGE, {"key": self._keys.of(key)})
        entries = [self._keys.entry(kv) for kv in answer.get("kvs", ())]
        return entries[0] if entries else None

    async def list(self, prefix: str) -> Listing:
        span = self._keys.span(prefix)
        both = [{"requestRange": {"key": self._keys.root}}, {"requestRange": {**span, "limit": str(_PAGE_KEYS)}}]
        answer = await self._read(_TXN, {"success": both})
        revision = int(answer["header"]["revision"])
        root, page = (response["response_range"] for response in answer["responses"])
        committed = int(root["kvs"][0]["mod_revision"]) if "kvs" in root else 0
        entries: list[KeyValue] = []
        while True:
            kvs = page.get("kvs", ())
            entries += await trio.to_thread.run_sync(lambda kvs: [self._keys.entry(kv) for kv in kvs], kvs)
            if not page.get("more"):
                return Listing(revision, tuple(entries), committed)
            following = {**span, "key": self._keys.of(entries[-1].key + "\0")}
            page = await self._read(_RANGE, {**following, "limit": str(_PAGE_KEYS), "revision": str(revision)})

    async def commit(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> int | None:
        is_flat = len(operations) < MAX_OPERATIONS
        if len(compares) <= (MAX_OPERATIONS if is_flat else _FEW_COMPARES):
            return await self._commit(compares, operations)
        for _ in range(_MAX_ATTEMPTS):
            root_revision = await self._root_revision()
            leased = await self._compare(compares)
            if leased is None:
                return None
            revision = await self._commit(leased, operations, root_revision)
            if revision is not None:
                return revision
        raise ConflictError("The metadata keeps being changed elsewhere.")

    @asynccontextmanager
    async def watch(self, prefix: str, after_revision: int) -> AsyncIterator[Watch]:
        self._check_open()
        watch = EtcdWatch(self._client, self._keys, prefix, after_revision)
        await watch.connect()
        self._watches.add(watch)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(watch.run)
                nursery.start_soon(watch.probe)
                yield watch
                nursery.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            # What the block has raised; the tasks of the watch raise nothing.
            if len(group.exceptions) == 1:
                raise group.exceptions[0] from None
            raise
        finally:
            self._watches.discard(watch)

    async def grant_lease(self, ttl_ms: int) -> int:
        return int((await self._read("/v3/lease/grant", {"TTL": str(ceil(ttl_ms / 1000))}))["ID"])

    async def keep_alive(self, lease: int) -> None:
        answer = await self._read("/v3/lease/keepalive", {"ID": str(lease)})
        if int(answer.get("TTL", 0)) <= 0:
            raise LeaseExpiredError(f"Lease {lease} has ended.")

    async def revoke_lease(self, lease: int) -> None:
        with suppress(LeaseExpiredError):
            await self._read("/v3/lease/revoke", {"ID": str(lease)})

    async def close(self) -> None:
        self._closed = True
        for watch in self._watches:
            watch.fail(StoreUnavailableError("The metadata store is closed."))
        await self._client.close()

    async def check(self) -> None:
        """Make sure that what is below the root, if there is anything, is an Ottla cluster, and lies in no other.

        Raises StoreUnavailableError with the reason, also if etcd cannot be reached.
        """
        first = {**self._keys.span(""), "limit": "1", "keys_only": True}
        asked = [first, *({"key": key} for key in (self._keys.root, *self._keys.parents))]
        answer = await self._read(_TXN, {"success": [{"requestRange": one} for one in asked]})
        inside, root, *parents = (response["response_range"].get("kvs", ()) for response in answer["responses"])
        elsewhere = "choose another prefix in --metadata etcd://host:port/prefix"
        if not root and inside:
            raise StoreUnavailableError(f"What etcd holds below {self._root} is not an Ottla cluster: {elsewhere}.")
        if root and not _is_ours(root[0]):
            raise StoreUnavailableError(
                f"The key {self._root} of etcd is not of an Ottla cluster that this version can read: {elsewhere}."
            )
        for kvs in parents:
            if kvs and _is_ours(kvs[0]):
                above = b64decode(kvs[0]["key"]).decode()
                raise StoreUnavailableError(f"{self._root} of etcd lies within the cluster of {above}: {elsewhere}.")

    async def _commit(
        self, compares: Sequence[Compare], operations: Sequence[Operation], root_revision: int | None = None
    ) -> int | None:
        self._check_open()
        size = sum(len(operation.value) for operation in operations if isinstance(operation, Put))
        if size < LARGE_BYTES and len(operations) + len(compares) < _MANY_OPERATIONS:
            body = self._keys.transaction(compares, operations, root_revision)
        else:
            body = await trio.to_thread.run_sync(self._keys.transaction, compares, operations, root_revision)
        try:
            answer = await self._client.write(_TXN, body)
        except EtcdError as error:
            raise _translated(error) from None
        return int(answer["header"]["revision"]) if answer.get("succeeded") else None

    async def _root_revision(self) -> int:
        kvs = (await self._read(_RANGE, {"key": self._keys.root})).get("kvs", ())
        return int(kvs[0]["mod_revision"]) if kvs else 0

    async def _compare(self, compares: Sequence[Compare]) -> Sequence[Compare] | None:
        """Compare many keys here; None if one differs. Returns those that the transaction has to compare, too: keys on
        leases, which may end without a transaction."""
        leased: list[Compare] = []
        for start in range(0, len(compares), MAX_OPERATIONS):
            some = compares[start : start + MAX_OPERATIONS]
            ranges = [{"requestRange": {"key": self._keys.of(compare.key), "keys_only": True}} for compare in some]
            answer = await self._read(_TXN, {"success": ranges})
            for compare, response in zip(some, answer["responses"], strict=True):
                kvs = response["response_range"].get("kvs", ())
                if compare.mod_revision != (int(kvs[0]["mod_revision"]) if kvs else 0):
                    return None
                if kvs and int(kvs[0].get("lease", NO_LEASE)) != NO_LEASE:
                    leased.append(compare)
        return leased

    async def _read(self, path: str, document: dict[str, Any]) -> dict[str, Any]:
        self._check_open()
        try:
            return await self._client.read(path, document)
        except EtcdError as error:
            raise _translated(error) from None

    def _check_open(self) -> None:
        if self._closed:
            raise StoreUnavailableError("The metadata store is closed.")


async def open_etcd_store(
    address: EtcdAddress, access: EtcdAccess, time_ms: Callable[[], int] | None = None
) -> EtcdMetadataStore:
    """Raises StoreUnavailableError, with the reason, if etcd cannot be reached or holds something else there.

    `time_ms` is this machine's clock, the system's by default. No lease depends on it: it is only compared.
    """
    store = EtcdMetadataStore(EtcdClient(address, access, time_ms), address.root)
    try:
        await store.check()
    except BaseException:
        with trio.CancelScope(shield=True):
            await store.close()
        raise
    return store


def _translated(error: EtcdError) -> MetadataError:
    if _LEASE_NOT_FOUND in str(error):
        return LeaseExpiredError("The lease has ended.")
    return refused(error)


def _is_ours(kv: dict[str, str]) -> bool:
    return b64decode(kv.get("value", "")) == FORMAT
