"""The composition root: a node is wired here, and only here.

Start: lock the data folder, listen (clients wait in the kernel's queue), open the metadata, open the logs of every
partition that this node holds and replay the coordinators' state, make the node's addresses known, serve.

Stop is the same backwards, and no step waits for what nobody may ever do:

0. Follow nobody any more, and let other replicas lead (`HAND_OVER_SECONDS` at most).
1. Accept nothing more and take no further request; answer who waits for other clients (fetches, share fetches, joins,
   syncs), for other replicas, which fetch nothing from here any more, or for other brokers.
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
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import uuid4

import trio

from ottla.server.broker import Broker
from ottla.server.client_metrics.manager import ClientMetrics
from ottla.server.cluster.controllership import Controllership, Duty
from ottla.server.cluster.deaths import DeathWatch
from ottla.server.cluster.elections import Elections
from ottla.server.cluster.growing_topics import GrowingTopics
from ottla.server.cluster.leaving import hand_over_partitions, leave_after_loss
from ottla.server.cluster.membership import Membership
from ottla.server.cluster.peers import Door, Peers
from ottla.server.coordinator.coordinators import Coordinators
from ottla.server.errors import StartupError
from ottla.server.event_loop.work import Lane
from ottla.server.metadata import keys
from ottla.server.metadata.controller import Controller
from ottla.server.metadata.errors import MetadataError
from ottla.server.metadata.image import BrokerImage, Endpoint, ResourceType
from ottla.server.metadata.open_store import SQLITE_FILE, open_store
from ottla.server.metadata.producer_ids import ProducerIds
from ottla.server.mirror.mirror import Mirror
from ottla.server.network.dispatch import Dispatcher
from ottla.server.network.endpoints import (
    HTTP_LISTENER,
    advertised_endpoints,
    connection_limits,
    listen_addresses,
    listener_protocols,
    parse_http_address,
)
from ottla.server.network.listener import ListenAddress, Listeners
from ottla.server.network.network import TcpNetwork, open_listening_socket
from ottla.server.quotas.clients import ClientQuotas
from ottla.server.quotas.connections import ConnectionRates
from ottla.server.quotas.replication import ReplicationQuota
from ottla.server.replica.high_watermarks import HighWatermarks
from ottla.server.replica.manager import ReplicaManager
from ottla.server.replica.replica_fetchers import ReplicaFetchers
from ottla.server.replica.throttles import Throttled, throttled_partitions
from ottla.server.security.authorizer import authorizer_of
from ottla.server.served.api import ApiTable
from ottla.server.settings.storage import log_config, storage_config
from ottla.server.share.leader import ShareLeader
from ottla.server.telemetry.changes import log_changes
from ottla.server.waiting.request_budget import RequestBudget
from ottla.storage.clock import Clock, SystemClock
from ottla.storage.disk import Disk, RealDisk
from ottla.storage.log_manager import LogManager
from ottla.storage.memory.buffer_pool import MemoryBudget
from ottla.storage.node_dir import make_folder

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.server.coordinator.share.cluster import OtherShareCoordinators
    from ottla.server.coordinator.transaction.other_brokers import OtherBrokers
    from ottla.server.event_loop.watchdog import LoopWatchdog
    from ottla.server.http.server import HttpServer
    from ottla.server.metadata.image import MetadataDelta, TopicImage
    from ottla.server.metadata.store import MetadataStore
    from ottla.server.mirror.link import Link
    from ottla.server.mirror.progress import MirrorProgress
    from ottla.server.network.guard import Guard
    from ottla.server.network.network import Network
    from ottla.server.security.credentials import Credentials
    from ottla.server.security.delegation_tokens import DelegationTokens
    from ottla.server.security.tls import ReloadedTls
    from ottla.server.settings.config import BrokerConfig
    from ottla.storage.node_dir import NodeDir
    from ottla.storage.store.context import RunBlocking

logger = logging.getLogger(__name__)

_CONSOLE: Final = "ottla.console.routes"
"""The web console stands on the server, which imports nothing of it: it goes by name, and only if it is enabled."""

HAND_OVER_SECONDS: Final = 5.0
"""How long a node that stops tries to hand its leadership over."""

STOP_GRACE_SECONDS: Final = 10.0
"""How long requests under way may take after the node was asked to stop."""


class Ready(NamedTuple):
    """What a node says when it serves."""

    node_id: int
    endpoints: tuple[Endpoint, ...]
    listening: tuple[ListenAddress, ...]
    broker: Broker
    #: Where the HTTP port is, None if there is none.
    http_url: str | None = None


class Node:
    """One broker. `serve` is its whole life; `stop` asks it to end in order."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        disk: Disk | None = None,
        clock: Clock | None = None,
        metadata_store: MetadataStore | None = None,
        network: Network | None = None,
        run_blocking: RunBlocking = trio.to_thread.run_sync,
        dispatcher: Callable[[ApiTable, Broker, ClientQuotas], Dispatcher] = Dispatcher,
        watchdog: LoopWatchdog | None = None,
    ) -> None:
        """`metadata_store` replaces the one that the configuration names; `run_blocking` runs what storage asks of
        the disk; `dispatcher` makes what hands requests to their handlers."""
        self._config = config
        self._metadata_store = metadata_store
        self._dispatcher = dispatcher
        self._watchdog = watchdog
        self._disk = RealDisk() if disk is None else disk
        self._clock = SystemClock() if clock is None else clock
        self._network = TcpNetwork() if network is None else network
        self._run_blocking = run_blocking
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
        config = self._config
        addresses = listen_addresses(config)
        data_dir = self._data_dir
        if not self._disk.exists(data_dir):
            _try_addresses(config, addresses, self._network)
        try:
            make_folder(self._disk, data_dir)
        except OSError as error:
            raise StartupError(f"cannot keep data in {data_dir}: {error.strerror}; choose another --data-dir") from None
        settings = storage_config(config)
        if not isinstance(self._disk, RealDisk):
            # A disk in memory would keep its reserve there.
            settings = settings._replace(disk_reserve_bytes=0)
        log_manager = LogManager(
            self._disk, data_dir, settings, self._clock, node_id=config.node_id, run_blocking=self._run_blocking
        )
        async with log_manager.run():
            if log_manager.node_dir.was_clean is False:
                folder = log_manager.node_dir.path
                logger.warning("%s was not closed in order: its logs are recovered", folder, extra={"path": folder})
            await self._refuse_without_metadata(log_manager)
            store = self._metadata_store or await open_store(
                config, Path(data_dir), self._clock, log_manager.context.space.make_room
            )
            try:
                await self._serve(addresses, log_manager, store, task_status)
            finally:
                with trio.CancelScope(shield=True):
                    await store.close()

    async def _refuse_without_metadata(self, log_manager: LogManager) -> None:
        """StartupError if topics have data here and the file that knows the topics is not there."""
        path = os.path.join(self._data_dir, SQLITE_FILE)
        is_in_file = self._metadata_store is None and self._config.ottla_metadata_store == "sqlite"
        if not is_in_file or await trio.Path(path).exists():
            return
        from ottla.storage.unknown_topics import unknown_folders

        node_path = log_manager.node_dir.path
        topics = await trio.to_thread.run_sync(unknown_folders, self._disk, node_path, frozenset())
        if topics:
            raise StartupError(
                f"{path} is missing, and nothing else knows the {len(topics)} topics with data in {node_path}: "
                "restore it from a backup, or move the data away, or make it anew with "
                f"`ottla restore --metadata-from-data --data-dir {self._data_dir}`"
            )

    async def _serve(
        self,
        addresses: list[ListenAddress],
        log_manager: LogManager,
        store: MetadataStore,
        task_status: trio.TaskStatus[Ready],
    ) -> None:
        config = self._config
        controller = Controller(store, config, node_id=config.node_id)
        membership = Membership(
            store,
            controller,
            directory_id=log_manager.node_dir.directory_id,
            session_timeout_ms=config.broker_session_timeout_ms,
            heartbeat_interval_ms=config.broker_heartbeat_interval_ms,
        )
        elections = Elections(config)
        growing_topics = GrowingTopics(config)
        tokens = _delegation_tokens(config, controller, self._clock)
        duties: tuple[Duty, ...] = (elections.run, elections.rebalance, growing_topics.run)
        if tokens is not None:
            duties += (tokens.remove_expired,)
        controllership = Controllership(controller, membership, duties)
        peers = Peers(
            lambda: controller.image,
            node_id=config.node_id,
            listener=config.inter_broker_listener_name,
            find_door=partial(_door, config, self._network),
        )
        replication_quota = partial(
            ReplicationQuota,
            windows=config.replication_quota_window_num,
            window_seconds=config.replication_quota_window_size_seconds,
        )
        high_watermarks = HighWatermarks(self._disk, log_manager.node_dir.path, self._run_blocking)
        await high_watermarks.load()
        budget = RequestBudget(config.ottla_memory_budget_bytes)
        replica_manager = ReplicaManager(
            log_manager,
            self._clock,
            node_id=config.node_id,
            # A budget of its own: clients that do not read their responses must not keep others from being read.
            response_budget=MemoryBudget(config.ottla_memory_budget_bytes),
            fetch_session_slots=config.max_incremental_fetch_session_cache_slots,
            log_config=lambda topic: log_config(config.topic_config(topic.configs)),
            min_insync_replicas=lambda topic: config.topic_config(topic.configs).min_insync_replicas,
            throttled=partial(_throttled, config),
            last_high_watermark=high_watermarks.of,
            leader_quota=replication_quota(lambda: config.leader_replication_throttled_rate),
            follower_quota=replication_quota(lambda: config.follower_replication_throttled_rate),
            max_lag_ms=config.replica_lag_time_max_ms,
        )
        log_manager.set_listener(replica_manager)
        fetchers = ReplicaFetchers(
            replica_manager, peers.connect, config, self._clock, broker_epoch=partial(_broker_epoch, controller)
        )
        quotas = ClientQuotas(
            config.quota_window_num,
            config.quota_window_size_seconds,
            controller_windows=config.controller_quota_window_num,
            controller_window_seconds=config.controller_quota_window_size_seconds,
        )
        broker = Broker(
            node_id=config.node_id,
            config=config,
            clock=self._clock,
            apis=ApiTable.default(takes_telemetry=bool(config.ottla_http_listen)),
            pool=log_manager.context.pool,
            budget=budget,
            lane=Lane(lambda: config.ottla_request_max_elements, budget.parsed, replica_manager.response_budget),
            controller=controller,
            peers=peers,
            log_manager=log_manager,
            replica_manager=replica_manager,
            producer_ids=ProducerIds(controller.allocate_producer_ids),
            quotas=quotas,
            authorizer=authorizer_of(config),
            client_metrics=ClientMetrics(config),
            credentials=_credentials(config, controller, self._clock, tokens),
            delegation_tokens=tokens,
            watchdog=self._watchdog,
        )
        connection_rates = ConnectionRates(config.quota_window_num, config.quota_window_size_seconds)
        listeners = Listeners(
            self._dispatcher(broker.apis, broker, quotas),
            broker.pool,
            budget,
            connection_limits(config),
            connection_rates,
            responses=replica_manager.response_budget,
            network=self._network,
        )
        guard = _guard(config, broker.credentials, listeners)
        http = _http_server(config)
        try:
            bound = tuple(
                ListenAddress(address.name, address.host, listeners.bind(address, config.socket_listen_backlog_size))
                for address in addresses
            )
            endpoints = advertised_endpoints(config, bound)
            broker.listeners = listeners
            async with trio.open_nursery() as nursery:
                if http is not None:
                    nursery.start_soon(http.run, broker)
                broker.coordinators = Coordinators(
                    config,
                    self._clock,
                    replica_manager,
                    broker.producer_ids.next,
                    controller.ensure_topic,
                    nursery,
                    other_brokers=partial(_other_brokers, peers),
                    other_share_coordinators=partial(_other_share_coordinators, peers),
                )
                broker.share = ShareLeader(config, self._clock, replica_manager, broker.coordinators, nursery)
                broker.mirror = Mirror(config, partial(_new_link, broker))
                if broker.authorizer is not None:
                    controller.subscribe(broker.authorizer.apply)
                controller.subscribe(replica_manager.apply)
                controller.subscribe(fetchers.apply)
                controller.subscribe(broker.coordinators.follow)
                controller.subscribe(broker.share.follow)
                controller.subscribe(broker.mirror.apply)
                controller.subscribe(log_changes)
                controller.subscribe(quotas.apply)
                controller.subscribe(broker.client_metrics.follow)
                controller.subscribe(connection_rates.apply)
                controller.subscribe(partial(_follow_settings, listeners, log_manager, config))
                controller.subscribe(peers.follow)
                controller.subscribe(membership.follow)
                controller.subscribe(elections.observe)
                controller.subscribe(growing_topics.observe)
                await _refuse_other_cluster(log_manager.node_dir, store)
                await membership.claim_id()
                node_dir = log_manager.node_dir
                await leave_after_loss(store, config, node_dir.directory_id, lost_power=node_dir.lost_power)
                if guard is not None:
                    controller.subscribe(guard.apply)
                    nursery.start_soon(guard.run)
                await nursery.start(controller.run)
                log_manager.node_dir.join(controller.image.cluster_id)
                await nursery.start(peers.run)
                await nursery.start(membership.run, self._registration(endpoints, log_manager))
                nursery.start_soon(controllership.run)
                nursery.start_soon(DeathWatch(controller, peers).run)
                nursery.start_soon(replica_manager.in_sync_sets.run, controller.change_partitions)
                interval_ms = max(1, config.replica_high_watermark_checkpoint_interval_ms)
                nursery.start_soon(high_watermarks.run, replica_manager.partitions, interval_ms)
                nursery.start_soon(_compare_with_folders, broker, store)
                following = trio.CancelScope()
                nursery.start_soon(_follow_others, fetchers, broker.mirror, following)
                nursery.start_soon(self._end_when_asked, broker, listeners, following)
                broker.is_serving = True
                task_status.started(Ready(config.node_id, endpoints, bound, broker, http.url if http else None))
                try:
                    await listeners.run(STOP_GRACE_SECONDS)
                    await membership.leave()
                finally:
                    _close_services(broker)
                nursery.cancel_scope.cancel()
        finally:
            listeners.close()
            if http is not None:
                http.close()

    def _registration(self, endpoints: tuple[Endpoint, ...], log_manager: LogManager) -> BrokerImage:
        node_dir = log_manager.node_dir
        return BrokerImage(
            self._config.node_id,
            endpoints,
            self._config.broker_rack,
            incarnation=uuid4().hex,
            directory_id=node_dir.directory_id,
            was_clean=node_dir.was_clean is not False,
        )

    async def _end_when_asked(self, broker: Broker, listeners: Listeners, following: trio.CancelScope) -> None:
        await self._stop.wait()
        # Who follows no more is not taken back into an in-sync set that it has left.
        following.cancel()
        if self._config.controlled_shutdown_enable:
            await _hand_over(broker.controller)
        broker.is_serving = False
        listeners.stop()
        # Waiting for what other clients may do is over; waiting for a flush that is under way is not.
        broker.replica_manager.fetch_purgatory.close()
        broker.replica_manager.share_fetch_purgatory.close()
        broker.replica_manager.lose_followers()
        broker.coordinators.answer_waiting()
        broker.peers.close()
        # By then everything has ended. Whatever has not, and is shielded, waits for what is closed here.
        await trio.sleep(STOP_GRACE_SECONDS)
        _close_services(broker)


def _close_services(broker: Broker) -> None:
    """End every wait for what this node serves. Once it is done, nothing happens."""
    broker.share.close()
    broker.coordinators.close()
    broker.replica_manager.close()


async def _refuse_other_cluster(node_dir: NodeDir, store: MetadataStore) -> None:
    """StartupError before anything is changed, if the folder's topics are another cluster's than the metadata's.

    As Kafka's BrokerMetadataCheckpoint and its InconsistentClusterIdException.
    """
    if node_dir.cluster_id is None:
        return
    entry = await store.get(keys.CLUSTER_ID)
    found = None if entry is None else keys.decode(entry.value)
    if found != node_dir.cluster_id:
        raise StartupError(
            f"{node_dir.path} belongs to the cluster {node_dir.cluster_id}, and the metadata is that of "
            f"{found or 'a new one'}: start it with the metadata of its own cluster, or empty the folder"
        )


def _try_addresses(config: BrokerConfig, addresses: list[ListenAddress], network: Network) -> None:
    """Refuse a first start that could not listen, before it leaves a folder behind. ConfigError or StartupError."""
    advertised_endpoints(config, addresses)
    if _asks_for_anything(config):
        from ottla.server.network.guard import entrances
        from ottla.server.security.credentials import Credentials

        entrances(config, Credentials(dict))
    backlog = config.socket_listen_backlog_size
    for address in addresses:
        network.listen(address.host, address.port, backlog, "--port").close()
    if config.ottla_http_listen:
        _tls_of_http(config)
        http = parse_http_address(config.ottla_http_listen)
        open_listening_socket(http.host, http.port, backlog, "--http").close()


def _asks_for_anything(config: BrokerConfig) -> bool:
    return any(protocol != "PLAINTEXT" for protocol in listener_protocols(config).values())


def _delegation_tokens(config: BrokerConfig, controller: Controller, clock: Clock) -> DelegationTokens | None:
    """None, and nothing of them loaded, where there are none."""
    if not config.delegation_token_secret_key:
        return None
    from ottla.server.security.delegation_tokens import DelegationTokens

    return DelegationTokens(config.delegation_token_secret_key, config, controller, clock.time_ms)


def _credentials(
    config: BrokerConfig, controller: Controller, clock: Clock, tokens: DelegationTokens | None
) -> Credentials | None:
    """What passwords are compared with; None, and nothing of it loaded, where no port asks for anything."""
    if not (_asks_for_anything(config) or (config.ottla_http_listen and _http_asks_for_login(config))):
        return None
    from ottla.server.security.credentials import Credentials

    return Credentials(lambda: controller.image.scram_credentials, clock.time_ms, tokens)


def _guard(config: BrokerConfig, credentials: Credentials | None, listeners: Listeners) -> Guard | None:
    """What asks clients who they are; None, and nothing of it loaded, where no listener does. ConfigError."""
    if not _asks_for_anything(config):
        return None
    from ottla.server.network.guard import Guard

    assert credentials is not None, "whoever asks has something to compare with"
    return Guard(config, credentials, listeners)


def _throttled(config: BrokerConfig, topic: TopicImage) -> Throttled:
    topic_config = config.topic_config(topic.configs)
    return Throttled(
        throttled_partitions(topic_config.leader_replication_throttled_replicas, config.node_id),
        throttled_partitions(topic_config.follower_replication_throttled_replicas, config.node_id),
    )


def _door(config: BrokerConfig, network: Network, endpoint: Endpoint) -> Door:
    """How another broker is reached; what encrypts and logs in is loaded only where it is needed."""
    if endpoint.security_protocol == "PLAINTEXT":
        return Door(partial(network.connect, endpoint.host, endpoint.port))
    from ottla.server.security import between_brokers

    return Door(between_brokers.open_stream(config, endpoint), between_brokers.login(config, endpoint))


def _other_brokers(peers: Peers) -> OtherBrokers:
    from ottla.server.apis.other_brokers import PeerBrokers

    return PeerBrokers(peers)


def _other_share_coordinators(peers: Peers) -> OtherShareCoordinators:
    from ottla.server.apis.other_share_coordinators import PeerShareCoordinators

    return PeerShareCoordinators(peers)


def _http_server(config: BrokerConfig) -> HttpServer | None:
    if not config.ottla_http_listen:
        return None
    from ottla.server.http.server import HttpServer

    console = _CONSOLE if config.ottla_console_enable else None
    if console is not None and config.authorizer_class_name and not _http_asks_for_login(config):
        logger.warning(
            "the web console asks nobody who they are, so everybody may do what ACLs allow User:ANONYMOUS: set "
            "ottla.http.security.protocol=SASL_SSL"
        )
    return HttpServer(parse_http_address(config.ottla_http_listen), console, _tls_of_http(config))


def _http_asks_for_login(config: BrokerConfig) -> bool:
    return config.ottla_http_security_protocol.startswith("SASL_")


def _tls_of_http(config: BrokerConfig) -> ReloadedTls | None:
    """What the HTTP port is encrypted with; None in plain text. Reads files, and raises ConfigError."""
    protocol = config.ottla_http_security_protocol
    if not protocol.endswith("SSL"):
        return None
    from ottla.server.security.tls import ReloadedTls

    return ReloadedTls(config, HTTP_LISTENER, protocol)


async def _compare_with_folders(broker: Broker, store: MetadataStore) -> None:
    """Say it where topics have data here that the metadata does not know: it may be old, or another cluster's."""
    from ottla.storage.unknown_topics import unknown_folders

    known = {topic.topic_id for topic in broker.metadata.topics.values()}
    node_path = broker.log_manager.node_dir.path
    unknown = await trio.to_thread.run_sync(unknown_folders, broker.log_manager.context.disk, node_path, known)
    if unknown:
        # A topic that was made meanwhile has its folder before the image shows it.
        try:
            made = {keys.decode_topic(entry.value)[0] for entry in (await store.list(keys.TOPICS)).entries}
        except MetadataError:
            return
        unknown = [each for each in unknown if each.topic_id not in made]
    if unknown:
        logger.error(
            "%d topics have data in %s and are not in the cluster's metadata, such as %s: was it lost, or is it old? "
            "`ottla fsck --delete-unknown` names them",
            len(unknown),
            node_path,
            os.path.basename(unknown[0].path),
            extra={"path": node_path},
        )


def _broker_epoch(controller: Controller) -> int:
    registered = controller.image.brokers.get(controller.node_id)
    return -1 if registered is None else registered.epoch


async def _follow_others(fetchers: ReplicaFetchers, mirror: Mirror, scope: trio.CancelScope) -> None:
    """Copy what other brokers lead, and what another cluster has."""
    with scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fetchers.run)
            nursery.start_soon(mirror.run)


def _new_link(broker: Broker) -> tuple[Link, MirrorProgress]:
    from ottla.server.mirror.link import Link
    from ottla.server.mirror.progress import MirrorProgress

    progress = MirrorProgress()
    link = Link(
        broker.controller,
        broker.replica_manager,
        broker.coordinators,
        broker.producer_ids,
        broker.peers,
        broker.config,
        broker.clock,
        progress,
    )
    return link, progress


async def _hand_over(controller: Controller) -> None:
    """Let others lead before this node stops; where that cannot be, they will when they find it gone."""
    with trio.move_on_after(HAND_OVER_SECONDS) as scope:
        try:
            await hand_over_partitions(controller)
        except MetadataError as error:
            logger.warning("leadership could not be handed over: %s", error, extra={"error": str(error)})
    if scope.cancelled_caught:
        logger.warning("leadership could not be handed over in time")


async def _follow_settings(
    listeners: Listeners, log_manager: LogManager, config: BrokerConfig, delta: MetadataDelta
) -> None:
    """Hand on what is not read from the configuration each time that it matters."""
    if any(resource.type is ResourceType.BROKER for resource in delta.changed_configs):
        log_manager.set_config(storage_config(config))
        # Names in max.connections.per.ip.overrides are looked up, which may take a while.
        listeners.set_limits(await trio.to_thread.run_sync(connection_limits, config))
