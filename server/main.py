"""The life of a node: its start and its stop. What it is made of is in `ottla.server.wiring`.

Start: lock the data folder, listen (clients wait in the kernel's queue), open the metadata, open the logs of the
partitions that this node holds and replay the coordinators' state, make the node's addresses known, serve. Where there
are many partitions, the logs of most are opened once it serves (`ottla.replica.unopened`).

Stop is the same backwards, and no step waits for something that may never happen:

0. Stop following, and let other replicas lead (`HAND_OVER_SECONDS` at most).
1. Accept no connection and take no request; answer the requests that wait for other clients (fetches, share fetches,
   joins, syncs), for other replicas, which no longer fetch from here, for other brokers, or for the metadata store.
2. Wait for the requests under way, which wait for the disk; for `STOP_GRACE_SECONDS` where a peer does not read, or
   the disk does not answer. Then give the session up, so that the other nodes know at once.
3. End the share partitions and close the coordinators, which settles every write that anybody waits for, shielded or
   not; end all other waits.
4. Cancel what runs in the background, close the metadata, flush and sync, mark the folder as cleanly closed.

If the node is cancelled instead, steps 3 and 4 follow at once. What ends each kind of wait, and what each shield from
cancellation waits for, is in docs/architecture.md ("The stop"). A node that was killed starts by the same code; storage
finds its tail by itself.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from ottla.metadata.open_store import open_store
from ottla.metastore.errors import MetadataError
from ottla.replica.unopened import OPENED_AT_START
from ottla.runtime.errors import StartupError
from ottla.runtime.supervisor import Supervisor
from ottla.server.cluster.controlled_shutdown import hand_over_partitions, leave_after_loss
from ottla.server.network.dispatch import Dispatcher
from ottla.server.network.endpoints import advertised_endpoints, listen_addresses
from ottla.server.network.network import TcpNetwork
from ottla.server.wiring.parts import NodeEnvironment, Parts
from ottla.server.wiring.start_checks import (
    compare_with_folders,
    refuse_other_cluster,
    refuse_without_metadata,
    try_addresses,
)
from ottla.settings.storage import storage_config
from ottla.storage.clock import Clock, SystemClock
from ottla.storage.disk import Disk, RealDisk
from ottla.storage.log_manager import LogManager
from ottla.storage.node_dir import make_folder

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.metadata.controller import Controller
    from ottla.metadata.image import Endpoint
    from ottla.metastore.store import MetadataStore
    from ottla.replica.remote.remote_storage import RemoteStorage
    from ottla.runtime.watchdog import LoopWatchdog
    from ottla.server.apis.table import ApiTable
    from ottla.server.broker import Broker
    from ottla.server.network.listener import ListenAddress
    from ottla.server.network.network import Network
    from ottla.server.quotas.clients import ClientQuotas
    from ottla.settings.config import BrokerConfig
    from ottla.storage.node_dir import NodeDir
    from ottla.storage.store.context import RunBlocking
    from ottla.tiers.object_store import ObjectStore

logger = logging.getLogger(__name__)

HAND_OVER_SECONDS: Final = 5.0
"""How long a node that stops tries to hand its leadership over."""

STOP_GRACE_SECONDS: Final = 10.0
"""How long requests under way may take after the node was asked to stop."""


OPEN_AGAIN_SECONDS: Final = 1.0


class Ready(NamedTuple):
    """A node that has begun to serve."""

    node_id: int
    endpoints: tuple[Endpoint, ...]
    listening: tuple[ListenAddress, ...]
    broker: Broker
    #: The URL of the HTTP port, None if there is none.
    http_url: str | None = None
    #: The URLs of the schema registry and of the REST proxy, None where it is not served.
    registry_url: str | None = None
    rest_url: str | None = None


class Node:
    """One broker. `serve` is its whole life; `stop` asks it to end in order."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        disk: Disk | None = None,
        clock: Clock | None = None,
        metadata_store: MetadataStore | None = None,
        object_store: ObjectStore | None = None,
        network: Network | None = None,
        run_blocking: RunBlocking = trio.to_thread.run_sync,
        dispatcher: Callable[[ApiTable, Broker, ClientQuotas], Dispatcher] = Dispatcher,
        watchdog: LoopWatchdog | None = None,
        page_socket: str | None = None,
        supervisor: Supervisor | None = None,
        opened_at_start: int = OPENED_AT_START,
    ) -> None:
        """`metadata_store` and `object_store` replace those that the configuration names; `run_blocking` runs what
        storage asks of the disk; `dispatcher` makes what hands requests to their handlers; at the path `page_socket`
        the page of all nodes asks for what the HTTP port serves; `supervisor` says what becomes of background work that
        fails. Of more partitions than `opened_at_start` a start leaves what it can for when it serves.
        """
        self._metadata_store = metadata_store
        self._environment = NodeEnvironment(
            config=config,
            disk=RealDisk() if disk is None else disk,
            clock=SystemClock() if clock is None else clock,
            network=TcpNetwork() if network is None else network,
            run_blocking=run_blocking,
            dispatcher=dispatcher,
            watchdog=watchdog,
            page_socket=page_socket,
            supervisor=Supervisor() if supervisor is None else supervisor,
            object_store=object_store,
            opened_at_start=opened_at_start,
        )
        self._data_dir = os.path.abspath((config.log_dirs or config.log_dir)[0])
        self._stop = trio.Event()

    def stop(self) -> None:
        """Begin the orderly end; `serve` returns when it is done."""
        self._stop.set()

    async def serve(self, *, task_status: trio.TaskStatus[Ready] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the node until `stop`. Started with what it listens on when the first request can be answered.

        Raises ConfigError, StartupError, DataDirLockedError, UnsupportedFormatError or MetadataError, possibly in a
        group, if the node cannot start.
        """
        config = self._environment.config
        addresses = listen_addresses(config)
        log_manager = self._log_manager(addresses)
        async with log_manager.run():
            if log_manager.node_dir.was_clean is False:
                folder = log_manager.node_dir.path
                logger.warning("%s was not closed in order: its logs are recovered", folder, extra={"path": folder})
            if self._metadata_store is None and config.ottla_metadata_store == "sqlite":
                await trio.to_thread.run_sync(
                    refuse_without_metadata, self._data_dir, log_manager.node_dir.path, log_manager.context.disk
                )
            store = self._metadata_store or await open_store(
                config, Path(self._data_dir), self._environment.clock, log_manager.context.space.make_room
            )
            try:
                parts = Parts(self._environment, log_manager, store)
                try:
                    await parts.high_watermarks.load()
                    await parts.kept_logs.load()
                    await self._run(parts, addresses, task_status)
                finally:
                    parts.close()
            finally:
                with trio.CancelScope(shield=True):
                    await store.close()

    def _log_manager(self, addresses: list[ListenAddress]) -> LogManager:
        """The data folder's manager; the folder is made if it is not there. Raises ConfigError or StartupError."""
        environment, data_dir = self._environment, self._data_dir
        if not environment.disk.exists(os.path.join(data_dir, f"node-{environment.config.node_id}")):
            try_addresses(environment.config, addresses, environment.network)
        try:
            make_folder(environment.disk, data_dir)
        except OSError as error:
            raise StartupError(f"cannot keep data in {data_dir}: {error.strerror}; choose another --data-dir") from None
        settings = storage_config(environment.config)
        if not isinstance(environment.disk, RealDisk):
            # A disk in memory would keep its reserve there.
            settings = settings._replace(disk_reserve_bytes=0)
        return LogManager(
            environment.disk,
            data_dir,
            settings,
            environment.clock,
            node_id=environment.config.node_id,
            run_blocking=environment.run_blocking,
            keep=environment.supervisor.keep,
        )

    async def _run(self, parts: Parts, addresses: list[ListenAddress], task_status: trio.TaskStatus[Ready]) -> None:
        """Start the parts in their order, serve until `stop`, and end them."""
        config, broker, controller = self._environment.config, parts.broker, parts.controller
        node_dir = parts.log_manager.node_dir
        bound = parts.listen(addresses)
        endpoints = advertised_endpoints(config, bound)
        async with trio.open_nursery() as nursery:
            if parts.http is not None:
                nursery.start_soon(parts.http.run, broker)
            parts.begin(nursery)
            await refuse_other_cluster(node_dir, parts.store)
            await parts.membership.claim_id()
            if await leave_after_loss(
                parts.store,
                config,
                node_dir.directory_id,
                lost_power=node_dir.lost_power,
                starts=node_dir.starts,
                restoration=node_dir.restoration,
            ):
                await parts.high_watermarks.forget()
                parts.replica_manager.expect_losses()
            if parts.remote_storage is None:
                node_dir.settle_loss()
            if parts.listener_security is not None:
                nursery.start_soon(broker.supervisor.keep, parts.listener_security.run)
            if parts.snapshots is not None:
                await parts.snapshots.begin()
            await nursery.start(controller.run)
            node_dir.join(controller.image.cluster_id)
            await nursery.start(parts.peers.run)
            await nursery.start(parts.membership.run, parts.registration(endpoints))
            following = trio.CancelScope()
            self._run_in_background(parts, nursery, following)
            nursery.start_soon(self._end_when_asked, parts, following)
            broker.begin_serving()
            http_url = None if parts.http is None else parts.http.url
            urls = {server.port.name: server.url for server in parts.mounted}
            found = urls.get("registry"), urls.get("rest")
            task_status.started(Ready(config.node_id, endpoints, bound, broker, http_url, *found))
            for server in parts.mounted:
                nursery.start_soon(server.run, broker)
            try:
                await parts.listeners.run(STOP_GRACE_SECONDS)
                await parts.membership.leave()
            finally:
                parts.close_services()
            nursery.cancel_scope.cancel()

    def _run_in_background(self, parts: Parts, nursery: trio.Nursery, following: trio.CancelScope) -> None:
        """Start the background tasks, which end with the nursery; following other leaders ends by its own scope."""
        keep = parts.broker.supervisor.keep
        nursery.start_soon(keep, parts.controllership.run)
        nursery.start_soon(keep, parts.death_watch.run)
        # If the in-sync sets stopped changing, a Produce with acks=all could wait for ever.
        nursery.start_soon(parts.replica_manager.in_sync_sets.run, parts.controller.change_partitions)
        interval_ms = max(1, self._environment.config.replica_high_watermark_checkpoint_interval_ms)
        manager = parts.replica_manager
        nursery.start_soon(keep, parts.high_watermarks.run, manager.partitions, manager.offline, interval_ms)
        parts.broker.supervisor.tasks(nursery).start_soon(compare_with_folders, parts.broker, parts.store)
        # What a start would fail with, if it were not left for later, ends the node then, too.
        nursery.start_soon(manager.open_rest)
        nursery.start_soon(keep, _open_again, parts)
        if parts.remote_storage is not None:
            nursery.start_soon(keep, parts.remote_storage.run, manager, parts.controller.publish_again)
            nursery.start_soon(keep, _settle_when_looked, parts.remote_storage, parts.log_manager.node_dir)
        if parts.snapshots is not None:
            nursery.start_soon(keep, parts.snapshots.run)
        nursery.start_soon(_follow_others, parts, following)

    async def _end_when_asked(self, parts: Parts, following: trio.CancelScope) -> None:
        await self._stop.wait()
        for server in parts.mounted:
            await server.end()
        # A node that no longer follows is not taken back into an in-sync set that it has left.
        following.cancel()
        if self._environment.config.controlled_shutdown_enable:
            await _hand_over(parts.controller)
        parts.broker.end_serving()
        parts.listeners.stop()
        parts.end_waits()
        # By then everything has ended. Whatever has not, because it is shielded, waits for what is closed here.
        await trio.sleep(STOP_GRACE_SECONDS)
        logger.warning("tasks did not end within %g s of the stop: closing what they wait for", STOP_GRACE_SECONDS)
        parts.close_services()


async def _settle_when_looked(remote_storage: RemoteStorage, node_dir: NodeDir) -> None:
    """Forget a loss once the object store was looked at: a start that ends before that leaves it to the next one."""
    await remote_storage.until_looked()
    node_dir.settle_loss()


async def _open_again(parts: Parts) -> None:
    """Open logs for which there was no room or no descriptor, once there may be."""
    while True:
        partitions = await parts.replica_manager.postponed_partitions()
        await trio.sleep(OPEN_AGAIN_SECONDS)
        await parts.log_manager.context.space.until_room()
        await parts.controller.publish_again(partitions)


async def _follow_others(parts: Parts, scope: trio.CancelScope) -> None:
    """Copy what other brokers lead, and what another cluster has."""
    with scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(parts.fetchers.run)
            nursery.start_soon(parts.broker.supervisor.keep, parts.broker.mirror.run)


async def _hand_over(controller: Controller) -> None:
    """Let others lead before this node stops; where that is not possible, they will when they find it gone."""
    with trio.move_on_after(HAND_OVER_SECONDS) as scope:
        try:
            await hand_over_partitions(controller)
        except MetadataError as error:
            logger.warning("leadership could not be handed over: %s", error, extra={"error": str(error)})
    if scope.cancelled_caught:
        logger.warning("leadership could not be handed over in time")
