"""The services that handlers reach through their context. `ottla.server.wiring.parts` fills it, and only there."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from ottla.replica.batch_writer import BatchWriter
from ottla.runtime.supervisor import Supervisor
from ottla.server.quotas.clients import ClientQuotas
from ottla.server.schemas.dead_letters import DeadLetterTopics
from ottla.server.schemas.source import Codecs
from ottla.server.schemas.validation import SchemaValidation
from ottla.storage.histogram import Histogram

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ottla.coordinator.coordinators import Coordinators
    from ottla.coordinator.group.coordinator import GroupCoordinator
    from ottla.coordinator.transaction.coordinator import TransactionCoordinator
    from ottla.coordinator.transaction.markers import ReplicaMarkers
    from ottla.coordinator.transaction.other_brokers import TransactionVerifier
    from ottla.kproto.api_keys import ApiKey
    from ottla.metadata.controller import Controller
    from ottla.metadata.image import MetadataImage
    from ottla.metadata.producer_ids import ProducerIds
    from ottla.replica.manager import ReplicaManager
    from ottla.replica.remote.remote_storage import RemoteStorage
    from ottla.runtime.request_budget import RequestBudget
    from ottla.runtime.watchdog import LoopWatchdog
    from ottla.runtime.work import LargeRequestQueue
    from ottla.security.authorizer import Authorizer
    from ottla.security.credentials import Credentials
    from ottla.security.delegation_tokens import DelegationTokens
    from ottla.server.client_metrics.manager import ClientMetrics
    from ottla.server.cluster.peers import Peers
    from ottla.server.mirror.mirror import Mirror
    from ottla.server.request_metrics import RequestMetrics
    from ottla.server.share.leader import ShareLeader
    from ottla.settings.config import BrokerConfig
    from ottla.storage.clock import Clock
    from ottla.storage.log_manager import LogManager
    from ottla.storage.memory.buffer_pool import BufferPool


class OpenConnections(Protocol):
    """The listeners' counts of connections."""

    @property
    def accepted(self) -> Mapping[str, int]: ...
    @property
    def refused(self) -> Mapping[str, int]: ...
    @property
    def delayed(self) -> int: ...
    @property
    def connection_count(self) -> int: ...
    def open_by_listener(self) -> Mapping[str, int]: ...


class ServedApi(Protocol):
    """An API that this node serves, as handlers and metrics see it."""

    @property
    def key(self) -> ApiKey: ...
    @property
    def min_version(self) -> int: ...
    @property
    def advertised_min_version(self) -> int: ...
    @property
    def max_version(self) -> int: ...
    @property
    def metrics(self) -> RequestMetrics | None: ...


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class Broker:
    """One node: what it is, and the parts that serve its requests."""

    node_id: int
    config: BrokerConfig
    clock: Clock
    apis: Iterable[ServedApi]
    pool: BufferPool
    budget: RequestBudget
    #: The queue through which requests of many elements go one by one.
    large_request_queue: LargeRequestQueue
    controller: Controller
    peers: Peers
    log_manager: LogManager
    replica_manager: ReplicaManager
    producer_ids: ProducerIds
    coordinators: Coordinators = field(init=False)
    share: ShareLeader = field(init=False)
    client_metrics: ClientMetrics
    mirror: Mirror = field(init=False)
    #: Set when the node listens, and when it serves.
    listeners: OpenConnections | None = None
    is_serving: bool = field(default=False, init=False)
    #: None where everybody may do everything.
    authorizer: Authorizer | None = None
    #: What passwords are compared with; None if nobody is asked for one.
    credentials: Credentials | None = None
    #: None where no object store is named.
    remote_storage: RemoteStorage | None = None
    #: None where there are none.
    delegation_tokens: DelegationTokens | None = None
    quotas: ClientQuotas = field(default_factory=ClientQuotas)
    #: The schemas of records, by id.
    codecs: Codecs = field(default_factory=Codecs)
    schema_validation: SchemaValidation = field(init=False)
    #: The writer of records that do not fit their schemas.
    dead_letter_topics: DeadLetterTopics = field(init=False)
    #: Knows what fails in the background.
    supervisor: Supervisor = field(default_factory=Supervisor)
    #: Times the loop's steps, if that was asked for.
    watchdog: LoopWatchdog | None = None
    #: How late the loop's timers fire; measured if somebody may ask for it.
    loop_lag: Histogram = field(default_factory=Histogram)

    def __post_init__(self) -> None:
        self.schema_validation = SchemaValidation(self.codecs, self.config)
        self.dead_letter_topics = DeadLetterTopics(
            config=self.config,
            clock=self.clock,
            replica_manager=self.replica_manager,
            writer=BatchWriter(self.replica_manager, self.peers, "letters of validation"),
            metadata=self.controller,
            threads=self.log_manager.context,
        )

    def add_services(self, coordinators: Coordinators, share: ShareLeader, mirror: Mirror) -> None:
        """Take over what has tasks of its own, once the node has a nursery for them."""
        self.coordinators, self.share, self.mirror = coordinators, share, mirror

    def begin_serving(self) -> None:
        """The node is in the cluster, and every part of it works."""
        self.is_serving = True

    def end_serving(self) -> None:
        """The node stops: it is not ready any more."""
        self.is_serving = False

    @property
    def metadata(self) -> MetadataImage:
        """The cluster's metadata as this node knows it now; an image never changes, so take it once a request."""
        return self.controller.loader.image  # what `controller.image` is, with a call less in every request

    @property
    def group_coordinator(self) -> GroupCoordinator:
        return self.coordinators.groups

    @property
    def transaction_coordinator(self) -> TransactionCoordinator:
        return self.coordinators.transactions

    @property
    def transaction_verifier(self) -> TransactionVerifier:
        return self.coordinators.transaction_verifier

    @property
    def transaction_markers(self) -> ReplicaMarkers:
        return self.coordinators.markers
