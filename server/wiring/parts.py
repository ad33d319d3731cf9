"""Everything that one node is made of, made and connected. Nothing of it runs before `ottla.server.main` runs it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

import trio

from ottla.coordinator.coordinators import Coordinators
from ottla.metadata.controller import Controller
from ottla.metadata.image import BrokerImage, ResourceType
from ottla.metadata.producer_ids import ProducerIds
from ottla.replica.config import ReplicaConfig
from ottla.replica.following.replica_fetchers import ReplicaFetchers
from ottla.replica.high_watermarks import HighWatermarks
from ottla.replica.kept_logs import KeptLogs
from ottla.replica.manager import ReplicaManager
from ottla.replica.stray_logs import StrayLogs
from ottla.replica.throttles import ReplicaQuotas
from ottla.replica.unopened import OPENED_AT_START
from ottla.runtime.memory_budget import MemoryBudget
from ottla.runtime.request_budget import RequestBudget
from ottla.runtime.supervisor import Loop, Supervisor
from ottla.runtime.work import LargeRequestQueue
from ottla.security.authorizer import authorizer_of
from ottla.server.apis.table import ApiTable
from ottla.server.broker import Broker
from ottla.server.client_metrics.manager import ClientMetrics
from ottla.server.cluster.controllership import Controllership, Duty
from ottla.server.cluster.elections import Elections
from ottla.server.cluster.failure_detector import FailureDetector
from ottla.server.cluster.internal_topic_replication import InternalTopicReplication
from ottla.server.cluster.membership import Membership
from ottla.server.cluster.peers import Peers
from ottla.server.mirror.mirror import Mirror
from ottla.server.network.connection_settings import ConnectionSettings, connection_limits
from ottla.server.network.listener import ListenAddress, Listeners
from ottla.server.network.network import SocketBuffers
from ottla.server.quotas.clients import ClientQuotas
from ottla.server.quotas.connections import ConnectionRates
from ottla.server.quotas.replication import ReplicationQuota
from ottla.server.share.leader import ShareLeader
from ottla.server.telemetry.changes import log_changes
from ottla.server.wiring import optional
from ottla.server.wiring.start_checks import require_object_store
from ottla.settings.storage import storage_config

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ottla.metadata.image import Endpoint, MetadataDelta
    from ottla.metadata.loader import Subscriber
    from ottla.metastore.store import MetadataStore
    from ottla.runtime.watchdog import LoopWatchdog
    from ottla.server.network.dispatch import Dispatcher
    from ottla.server.network.network import Network
    from ottla.settings.config import BrokerConfig
    from ottla.storage.clock import Clock
    from ottla.storage.disk import Disk
    from ottla.storage.log_manager import LogManager
    from ottla.storage.store.context import RunBlocking
    from ottla.tiers.object_store import ObjectStore


class NodeEnvironment(NamedTuple):
    """The node's dependencies from outside."""

    config: BrokerConfig
    disk: Disk
    clock: Clock
    network: Network
    #: Runs what storage asks of the disk.
    run_blocking: RunBlocking
    #: Makes what hands requests to their handlers.
    dispatcher: Callable[[ApiTable, Broker, ClientQuotas], Dispatcher]
    watchdog: LoopWatchdog | None
    #: Outlives failures of background work, or does not.
    supervisor: Supervisor
    #: The object store of tiered topics, None for the one that the configuration names.
    object_store: ObjectStore | None = None
    #: The path at which the page of all nodes asks for what the HTTP port serves, None if there is no such page.
    page_socket: str | None = None
    #: Of how many partitions a start leaves none for when it serves.
    opened_at_start: int = OPENED_AT_START


class Parts:
    """The parts of one node; those that need tasks of their own come with `begin`. Raises ConfigError."""

    def __init__(self, environment: NodeEnvironment, log_manager: LogManager, store: MetadataStore) -> None:
        self._environment = environment
        self._config = config = environment.config
        self.log_manager = log_manager
        self.store = store
        self._supervisor = environment.supervisor
        self.controller = Controller(store, config, node_id=config.node_id, note_start=log_manager.node_dir.note_start)
        self.peers = Peers(
            self.controller,
            node_id=config.node_id,
            listener=config.inter_broker_listener_name,
            find_endpoint=partial(optional.peer_endpoint, config, environment.network),
        )
        self._tokens = optional.delegation_tokens(config, self.controller, environment.clock)
        self._join_cluster()
        threads, folder = log_manager.context, log_manager.node_dir.path
        self.high_watermarks = HighWatermarks(environment.disk, folder, threads)
        self.kept_logs = KeptLogs(environment.disk, folder, threads)
        self.remote_storage = optional.remote_storage(
            config, environment.disk, environment.clock, log_manager.node_dir, environment.object_store
        )
        self.replica_manager = self._new_replica_manager()
        log_manager.set_listener(self.replica_manager)
        self.fetchers = ReplicaFetchers(
            self.replica_manager,
            self.peers,
            config,
            environment.clock,
            supervisor=self._supervisor,
        )
        apis = ApiTable.default(takes_telemetry=bool(config.ottla_http_listen), release=config.ottla_kafka_release)
        self.broker = self._new_broker(apis)
        self.snapshots = optional.snapshots(self.broker, store)
        self._connection_rates = ConnectionRates(config.quota_window_num, config.quota_window_size_seconds)
        self.listeners = Listeners(
            environment.dispatcher(apis, self.broker, self.broker.quotas),
            self.broker.pool,
            self.broker.budget,
            connection_limits(config),
            self._connection_rates,
            responses=self.replica_manager.response_budget,
            turn=log_manager.context.turn,
            network=environment.network,
        )
        self._connection_settings = ConnectionSettings(config, environment.network, self.listeners)
        self.listener_security = optional.listener_security(config, self.broker.credentials, self.listeners)
        self.http = optional.http_server(config, environment.page_socket)
        self.mounted = optional.mounted_servers(config)
        self.broker.codecs.look_up_in(optional.schema_source(config))

    def _join_cluster(self) -> None:
        """Make what knows the other nodes, and what this one does for all when it is the controller."""
        config = self._config
        self.membership = Membership(
            self.store,
            self.controller,
            directory_id=self.log_manager.node_dir.directory_id,
            session_timeout_ms=config.broker_session_timeout_ms,
            heartbeat_interval_ms=config.broker_heartbeat_interval_ms,
        )
        self._elections = Elections(config)
        self._internal_topics = InternalTopicReplication(config)
        duties: tuple[Duty, ...] = (self._elections.run, self._elections.rebalance, self._internal_topics.run)
        if self._tokens is not None:
            duties += (self._tokens.remove_expired,)
        self.controllership = Controllership(self.controller, self.membership, duties)
        self.death_watch = FailureDetector(self.controller, self.peers)

    def _new_replica_manager(self) -> ReplicaManager:
        config = self._config
        quota = partial(
            ReplicationQuota,
            windows=config.replication_quota_window_num,
            window_seconds=config.replication_quota_window_size_seconds,
        )
        return ReplicaManager(
            self.log_manager,
            self._environment.clock,
            ReplicaConfig(config, opened_at_start=self._environment.opened_at_start),
            # A budget of its own: clients that do not read their responses must not keep others from being read.
            response_budget=MemoryBudget(config.ottla_memory_budget_bytes),
            quotas=ReplicaQuotas(
                quota(lambda: config.leader_replication_throttled_rate),
                quota(lambda: config.follower_replication_throttled_rate),
            ),
            session=self.membership,
            high_watermarks=self.high_watermarks,
            kept_logs=self.kept_logs,
            remote_logs=self.remote_storage,
        )

    def _new_broker(self, apis: ApiTable) -> Broker:
        config, clock = self._config, self._environment.clock
        budget = RequestBudget(config.ottla_memory_budget_bytes)
        return Broker(
            node_id=config.node_id,
            config=config,
            clock=clock,
            apis=apis,
            pool=self.log_manager.context.pool,
            budget=budget,
            large_request_queue=LargeRequestQueue(
                lambda: config.ottla_request_max_elements, budget.parsed, self.replica_manager.response_budget
            ),
            controller=self.controller,
            peers=self.peers,
            log_manager=self.log_manager,
            replica_manager=self.replica_manager,
            producer_ids=ProducerIds(self.controller.allocate_producer_ids),
            quotas=ClientQuotas(
                config.quota_window_num,
                config.quota_window_size_seconds,
                controller_windows=config.controller_quota_window_num,
                controller_window_seconds=config.controller_quota_window_size_seconds,
            ),
            authorizer=authorizer_of(config),
            client_metrics=ClientMetrics(config),
            credentials=optional.credentials(config, self.controller, clock, self._tokens),
            delegation_tokens=self._tokens,
            remote_storage=self.remote_storage,
            watchdog=self._environment.watchdog,
            supervisor=self._supervisor,
        )

    def listen(self, addresses: Iterable[ListenAddress]) -> tuple[ListenAddress, ...]:
        """Bind: clients wait in the kernel's queue from now on. Returns the addresses with their ports."""
        config = self._config
        buffers = SocketBuffers(config.socket_send_buffer_bytes, config.socket_receive_buffer_bytes)
        bound = []
        for name, host, wanted in addresses:
            port = self.listeners.bind(ListenAddress(name, host, wanted), config.socket_listen_backlog_size, buffers)
            bound.append(ListenAddress(name, host, port))
        self.broker.listeners = self.listeners
        return tuple(bound)

    def begin(self, nursery: trio.Nursery) -> None:
        """Make what has tasks of its own, and let every part know of what changes in the metadata."""
        broker, config, clock = self.broker, self._config, self._environment.clock
        tasks = broker.supervisor.tasks(nursery)
        tasks.start_soon(Loop(self._connection_settings.run))
        coordinators = Coordinators(
            config,
            clock,
            self.replica_manager,
            broker.producer_ids,
            self.controller,
            tasks,
            other_brokers=partial(optional.other_brokers, self.peers),
            other_share_coordinators=partial(optional.other_share_coordinators, self.peers),
        )
        share = ShareLeader(
            config,
            clock,
            self.replica_manager,
            coordinators,
            self.controller,
            self.peers,
            self.log_manager.context,
            tasks,
        )
        broker.add_services(coordinators, share, Mirror(config, partial(optional.new_link, broker)))
        self._subscribe()

    def _subscribe(self) -> None:
        """Subscribe in the order in which a change must arrive: rights first, then replicas, then what builds on them.

        The node ends if one of the first two fails: it would allow what is forbidden, or serve what it no longer leads.
        A failure of another subscriber costs its own work only.
        """
        broker, subscribe = self.broker, self.controller.subscribe

        def subscribe_contained(subscriber: Subscriber) -> None:
            subscribe(broker.supervisor.contained(subscriber))

        if broker.authorizer is not None:
            subscribe(broker.authorizer.apply)
        # Before records can be appended: none may get in that a topic refuses.
        subscribe(broker.schema_validation.apply)
        subscribe(self.replica_manager.apply)
        if self.remote_storage is not None:
            subscribe_contained(partial(self.remote_storage.apply, manager=self.replica_manager))
        else:
            subscribe(partial(require_object_store, config=self._config))
        stray_logs = StrayLogs(self.log_manager, self.kept_logs, self.high_watermarks, self._config.node_id)
        subscribe_contained(stray_logs.apply)
        subscribe_contained(self.fetchers.apply)
        subscribe(broker.coordinators.follow)
        subscribe(broker.share.follow)
        subscribe_contained(broker.mirror.apply)
        subscribe_contained(log_changes)
        subscribe_contained(broker.dead_letter_topics.follow)
        subscribe_contained(broker.quotas.apply)
        subscribe_contained(broker.client_metrics.follow)
        subscribe_contained(self._connection_rates.apply)
        subscribe_contained(self._follow_settings)
        subscribe_contained(self.peers.follow)
        subscribe_contained(self.membership.follow)
        subscribe_contained(self._elections.observe)
        subscribe_contained(self._internal_topics.observe)
        if self.listener_security is not None:
            subscribe_contained(self.listener_security.apply)
            self.controller.check_settings_with(self.listener_security.check)

    async def _follow_settings(self, delta: MetadataDelta) -> None:
        """Pass on the settings that are not read from the configuration each time they matter."""
        if any(resource.type is ResourceType.BROKER for resource in delta.changed_configs):
            self.log_manager.set_config(storage_config(self._config))
            self._connection_settings.renew()

    def registration(self, endpoints: tuple[Endpoint, ...]) -> BrokerImage:
        """This node's registration in the metadata."""
        node_dir = self.log_manager.node_dir
        return BrokerImage(
            self._config.node_id,
            endpoints,
            self._config.broker_rack,
            incarnation=uuid4().hex,
            directory_id=node_dir.directory_id,
            was_clean=node_dir.was_clean is not False,
        )

    def end_waits(self) -> None:
        """End all waits for other clients, brokers and the metadata store; waits for a flush under way go on."""
        broker = self.broker
        self.controller.begin_shutdown()
        broker.replica_manager.fetch_purgatory.close()
        broker.replica_manager.share_fetch_purgatory.close()
        broker.replica_manager.lose_followers()
        broker.coordinators.answer_waiting()
        self.peers.close()

    def close_services(self) -> None:
        """End every wait for what this node serves. Once it is done, nothing happens."""
        self.broker.share.close()
        self.broker.coordinators.close()
        self.broker.replica_manager.close()

    def close(self) -> None:
        """Close the ports."""
        self.listeners.close()
        if self.http is not None:
            self.http.close()
        for server in self.mounted:
            server.close()
