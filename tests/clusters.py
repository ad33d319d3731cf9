"""Several whole nodes in this process over one metadata store in memory: each has its folder, its port and its life."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
import trio

from ottla.kproto.api_keys import ApiKey
from ottla.metadata.image import MetadataImage
from ottla.metastore.errors import StoreUnavailableError
from ottla.metastore.memory import MemoryMetadataStore
from ottla.metastore.store import Change, Compare, KeyValue, Listing, Operation, Watch
from ottla.runtime.supervisor import Supervisor
from ottla.server.main import Node
from ottla.settings.config import BrokerConfig
from ottla.storage.disk import Disk
from ottla.storage.disk.simulated_disk import SimulatedDisk
from tests.servers import Client, RunningNode

SETTINGS: Mapping[str, str] = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "broker.session.timeout.ms": "1000",
    "broker.heartbeat.interval.ms": "100",
    "offsets.topic.num.partitions": "6",
    "transaction.state.log.num.partitions": "6",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "group.initial.rebalance.delay.ms": "0",
}
"""What every node has, unless a test says otherwise: sessions are short, and there are few internal partitions."""


class NodeStore:
    """One node's way to the store that all of them share; it can be cut off, and closing it closes nothing."""

    def __init__(self, shared: MemoryMetadataStore) -> None:
        self._shared = shared
        self._is_cut_off = False
        self._waiting: set[trio.CancelScope] = set()

    @property
    def is_cut_off(self) -> bool:
        return self._is_cut_off

    @is_cut_off.setter
    def is_cut_off(self, now: bool) -> None:
        self._is_cut_off = now
        for scope in self._waiting if now else ():
            scope.cancel()

    def _reach(self) -> MemoryMetadataStore:
        if self.is_cut_off:
            raise StoreUnavailableError("The metadata store cannot be reached.")
        return self._shared

    async def get(self, key: str) -> KeyValue | None:
        return await self._reach().get(key)

    async def list(self, prefix: str) -> Listing:
        return await self._reach().list(prefix)

    async def commit(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> int | None:
        return await self._reach().commit(compares, operations)

    @asynccontextmanager
    async def watch(self, prefix: str, after_revision: int) -> AsyncIterator[Watch]:
        async with self._reach().watch(prefix, after_revision) as watch:
            yield _NodeWatch(self, watch)

    async def receive(self, watch: Watch) -> Change:
        """The next change, unless the node is cut off before it comes."""
        self._reach()
        with trio.CancelScope() as scope:
            self._waiting.add(scope)
            try:
                return await watch.receive()
            finally:
                self._waiting.discard(scope)
        raise StoreUnavailableError("The metadata store cannot be reached.")

    async def grant_lease(self, ttl_ms: int) -> int:
        return await self._reach().grant_lease(ttl_ms)

    async def keep_alive(self, lease: int) -> None:
        await self._reach().keep_alive(lease)

    async def revoke_lease(self, lease: int) -> None:
        await self._reach().revoke_lease(lease)

    async def close(self) -> None:
        self.is_cut_off = True


class _NodeWatch:
    def __init__(self, store: NodeStore, watch: Watch) -> None:
        self._store = store
        self._watch = watch

    async def receive(self) -> Change:
        return await self._store.receive(self._watch)


class Member(RunningNode):
    """A running node of a cluster."""

    store: NodeStore
    scope: trio.CancelScope
    ended: trio.Event
    has_lost_power = False

    @property
    def image(self) -> MetadataImage:
        return self.broker.metadata


class Cluster:
    """Nodes by their ids. Its creator has the nursery that runs them."""

    def __init__(self, folder: Path, nursery: trio.Nursery, settings: Mapping[str, str]) -> None:
        self.store = MemoryMetadataStore()
        self.nodes: dict[int, Member] = {}
        self._folder = folder
        self._nursery = nursery
        self._settings = settings

    def __getitem__(self, node_id: int) -> Member:
        return self.nodes[node_id]

    async def start(
        self, node_id: int, *, folder: Path | None = None, disk: Disk | None = None, **settings: str
    ) -> Member:
        """Start a node, perhaps again; settings by Kafka's names with underscores for dots."""
        own = {name.replace("_", "."): value for name, value in settings.items()}
        static = {
            **SETTINGS,
            "log.dirs": str(folder or self._folder / f"data-{node_id}"),
            **self._settings,
            **own,
            "node.id": str(node_id),
        }
        store = NodeStore(self.store)
        supervisor = Supervisor(is_strict=True)
        node = Node(BrokerConfig(static), metadata_store=store, disk=disk, supervisor=supervisor)
        scope, ended = trio.CancelScope(), trio.Event()

        async def serve(*, task_status: trio.TaskStatus[object]) -> None:
            try:
                with scope:
                    await node.serve(task_status=task_status)
            except* OSError:
                if not running.has_lost_power:
                    raise
            finally:
                ended.set()

        running = Member(node, await self._nursery.start(serve))
        running.store, running.scope, running.ended = store, scope, ended
        self.nodes[node_id] = running
        return running

    async def stop(self, node_id: int) -> None:
        """Stop a node in order."""
        node = await self._leave(node_id)
        node.node.stop()
        await node.ended.wait()

    async def kill(self, node_id: int) -> None:
        """End a node as far as the others can see: it says nothing to anybody, and its session is left to end."""
        node = await self._leave(node_id)
        node.store.is_cut_off = True
        node.scope.cancel()
        await node.ended.wait()

    async def _leave(self, node_id: int) -> Member:
        node = self.nodes.pop(node_id)
        for client in node.clients:
            await trio.aclose_forcefully(client.stream)
        return node

    async def lose_power(self, node_id: int, disk: SimulatedDisk) -> SimulatedDisk:
        """End a node as `kill` does, without what it had not synced. Returns the disk that it finds when it is back."""
        self.nodes[node_id].has_lost_power = True
        left = disk.power_loss()
        await self.kill(node_id)
        return left

    async def until(self, is_so: Callable[[MetadataImage], bool], *nodes: int) -> None:
        """Wait until the images of the nodes (all, if none is named) show something."""
        with trio.fail_after(20):
            for node_id in nodes or tuple(self.nodes):
                node = self.nodes[node_id]
                while not is_so(node.image):
                    await node.broker.controller.next_image()

    async def until_connected(self) -> None:
        """Wait until each node was reached by each other: only who has answered is found to be gone."""
        with trio.fail_after(20):
            for node in self.nodes.values():
                while _negotiated(node) < len(self.nodes) - 1:  # noqa: ASYNC110 - nobody tells
                    await trio.sleep(0.01)

    async def connect(self, node_id: int) -> Client:
        """A client of a node, which closes it when it leaves. OSError if it has left meanwhile."""
        node = self.nodes[node_id]
        client = await node.connect()
        if self.nodes.get(node_id) is not node:
            await trio.aclose_forcefully(client.stream)
            raise ConnectionAbortedError(f"node {node_id} has left")
        return client


def _negotiated(node: Member) -> int:
    """How many connections to a node have agreed upon versions."""
    (api,) = (api for api in node.broker.apis if api.key is ApiKey.API_VERSIONS)
    return 0 if api.metrics is None else api.metrics.requests


RunCluster = Callable[..., AbstractAsyncContextManager[Cluster]]


@pytest.fixture
def run_cluster(tmp_path: Path) -> RunCluster:
    """`async with run_cluster(3, settings…) as cluster`: nodes 1 to 3, stopped in order at the end."""

    @asynccontextmanager
    async def run(count: int = 3, settings: Mapping[str, str] | None = None) -> AsyncIterator[Cluster]:
        async with trio.open_nursery() as nursery:
            cluster = Cluster(tmp_path, nursery, settings or {})
            for node_id in range(1, count + 1):
                await cluster.start(node_id)
            await cluster.until(lambda image: sum(1 for _ in image.live_brokers()) == count)
            try:
                yield cluster
            finally:
                with trio.CancelScope(shield=True):
                    for node_id in list(cluster.nodes):
                        await cluster.stop(node_id)
        for node in cluster.nodes.values():
            assert node.broker.pool.counters.in_use == 0

    return run
