"""The cluster's metadata at one revision: topics, partitions, configs, brokers, features, quotas.

An image never changes. A change makes a new image which shares everything else with the old one, and a
`MetadataDelta` that names what differs, so that neither costs anything for what stayed as it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol
from uuid import UUID
from zlib import crc32

from ottla.metadata.persistent_map import PersistentMap
from ottla.settings.mirrored import MIRROR_SETTING, Mirrored, mirrored

if TYPE_CHECKING:
    from ottla.metadata.acls import Acl
    from ottla.metadata.delegation_tokens import DelegationToken
    from ottla.metadata.scram_changes import ScramCredential, ScramKey

NO_LEADER: Final = -1

#: Topics that coordinators keep their state in; clients may read but not create or delete them by accident.
INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})

_EMPTY: Final[Mapping[str, str]] = MappingProxyType({})


class PartitionState(NamedTuple):
    """A partition's replicas and leader. `partition_epoch` rises with every change of the state, `leader_epoch` only
    when a leadership begins: with every election, and with every start of the broker that leads. Neither ever goes back
    (Metadata v9 and later promise that).

    If all ISR members are dead, `isr` keeps the last ones: it is never empty. `elr` are replicas outside it that may
    lead as well; `last_known_elr` is the last leader while there is none (eligible_leaders.py).
    """

    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader_epoch: int = 0
    partition_epoch: int = 0
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()

    @classmethod
    def initial(cls, replicas: tuple[int, ...]) -> PartitionState:
        """The state of a partition that nothing has happened to: its first replica leads, all are in sync."""
        return cls(leader=replicas[0], replicas=replicas, isr=replicas)

    def after_starts(self, count: int) -> PartitionState:
        """The state after its leader has started so many more times: each time it leads in an epoch of its own."""
        if count == 0:
            return self
        return self._replace(leader_epoch=self.leader_epoch + count, partition_epoch=self.partition_epoch + count)


class TopicImage(NamedTuple):
    """One topic. `configs` holds only what was set on the topic itself, as strings; `revision` is that of
    the topic's own key in the store, for a compare-and-swap."""

    name: str
    topic_id: UUID
    partitions: tuple[PartitionState, ...]
    configs: Mapping[str, str] = _EMPTY
    revision: int = 0

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS

    @property
    def is_mirrored(self) -> bool:
        """Whether this is another cluster's topic, which clients may only read."""
        return MIRROR_SETTING in self.configs

    @property
    def mirrored(self) -> Mirrored:
        """Which topic this one is a mirror of, if it is one."""
        return mirrored(self.configs)


class ResourceType(IntEnum):
    """The type of resource that configs belong to; the numbers are those of the wire and of the official clients."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigResource(NamedTuple):
    """A thing that can be configured. The name of all brokers together (the cluster-wide default) is ''."""

    type: ResourceType
    name: str


class Endpoint(NamedTuple):
    """The advertised address of a broker's listener."""

    listener: str
    host: str
    port: int
    security_protocol: str = "PLAINTEXT"


class BrokerImage(NamedTuple):
    """A registered broker. `epoch` is the revision of its registration and fences older incarnations.

    `incarnation` differs for each process, `directory_id` stays with the data folder. `was_clean` is False if the last
    process in the folder did not close it in order: what it held may not all be on the disk.
    """

    node_id: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    epoch: int = 0
    fenced: bool = False
    incarnation: str = ""
    directory_id: str = ""
    was_clean: bool = True

    def endpoint(self, listener: str) -> Endpoint | None:
        """The address that clients of `listener` are told, or None if the broker does not have that listener."""
        return next((endpoint for endpoint in self.endpoints if endpoint.listener == listener), None)


class Session(NamedTuple):
    """Says that a broker is alive, as long as its lease lasts, and which process of which folder it is."""

    incarnation: str
    directory_id: str


#: What a client quota's entity may consist of.
USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"

#: A client quota's entity: sorted (type, name) pairs; a None name is the default of that type.
QuotaEntity = tuple[tuple[str, str | None], ...]


def _topic_shard(name: str) -> int:
    return crc32(name.encode("utf-8", "surrogatepass"))


def _id_shard(topic_id: UUID) -> int:
    return topic_id.int >> 16


class MetadataView(Protocol):
    """Shows the metadata as it is now, as far as its owner has followed it."""

    @property
    def image(self) -> MetadataImage: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataImage:
    """Everything known about the cluster at `revision` of the metadata store."""

    revision: int = 0
    cluster_id: str = ""
    controller_id: int = NO_LEADER
    topics: PersistentMap[str, TopicImage] = field(default_factory=lambda: PersistentMap(_topic_shard))
    topics_by_id: PersistentMap[UUID, TopicImage] = field(default_factory=lambda: PersistentMap(_id_shard))
    #: All that are registered; those without a session are fenced.
    brokers: Mapping[int, BrokerImage] = field(default_factory=dict)
    sessions: Mapping[int, Session] = field(default_factory=dict)
    #: Of brokers, groups and client metrics; a topic's own are in its `TopicImage`.
    configs: Mapping[ConfigResource, Mapping[str, str]] = field(default_factory=dict)
    #: How often each broker has started after its first time.
    starts: Mapping[int, int] = field(default_factory=dict)
    features: Mapping[str, int] = field(default_factory=dict)
    quotas: Mapping[QuotaEntity, Mapping[str, float]] = field(default_factory=dict)
    scram_credentials: Mapping[ScramKey, ScramCredential] = field(default_factory=dict)
    #: By their ids.
    delegation_tokens: Mapping[str, DelegationToken] = field(default_factory=dict)
    #: The entries of the access control lists.
    acls: Mapping[Acl, None] = field(default_factory=dict)

    def topic(self, name: str) -> TopicImage | None:
        return self.topics.get(name)

    def topic_by_id(self, topic_id: UUID) -> TopicImage | None:
        return self.topics_by_id.get(topic_id)

    def partition(self, topic: str, partition: int) -> PartitionState | None:
        image = self.topics.get(topic)
        if image is None or not 0 <= partition < len(image.partitions):
            return None
        return image.partitions[partition]

    def resource_configs(self, resource: ConfigResource) -> Mapping[str, str]:
        """The configs set on the resource itself; empty if there are none."""
        if resource.type is ResourceType.TOPIC:
            topic = self.topics.get(resource.name)
            return _EMPTY if topic is None else topic.configs
        return self.configs.get(resource, _EMPTY)

    def live_brokers(self) -> Iterator[BrokerImage]:
        return (broker for broker in self.brokers.values() if not broker.fenced)


class PartitionChange(NamedTuple):
    """A partition that is new (`before` is None) or whose state changed."""

    topic: TopicImage
    partition: int
    before: PartitionState | None
    after: PartitionState


class MetadataDelta(NamedTuple):
    """The differences between two images; subscribers apply them in the order of the fields.

    A topic that was deleted and created again under its name is in `deleted_topics` with the old id and
    in `created_topics` with the new one; `changed_partitions` includes those of created topics. The first
    delta after a start goes from an empty image to everything, so that starting is no special case.
    """

    before: MetadataImage
    after: MetadataImage
    deleted_topics: Sequence[TopicImage] = ()
    created_topics: Sequence[TopicImage] = ()
    changed_partitions: Sequence[PartitionChange] = ()
    #: Topics whose own configs changed (not the created ones).
    reconfigured_topics: Sequence[TopicImage] = ()
    #: Brokers, groups and client metrics whose configs changed; every topic's defaults follow a broker's.
    changed_configs: Sequence[ConfigResource] = ()
    changed_brokers: Sequence[int] = ()
    features_changed: bool = False
    quotas_changed: bool = False
