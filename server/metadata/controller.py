"""The controller: every change of the cluster's metadata goes through here.

What a change consists of is decided in other modules, each loaded when the first change of its kind is asked for.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import inf
from typing import TYPE_CHECKING, Final, TypeVar
from uuid import UUID, uuid4

import trio

from ottla.server.errors import kept
from ottla.server.event_loop.pace import Pace
from ottla.server.metadata import keys
from ottla.server.metadata.errors import (
    BrokerIdNotRegisteredError,
    ConflictError,
    DuplicateBrokerIdError,
    InvalidRequestError,
    MetadataError,
    PolicyViolationError,
    StoreUnavailableError,
    TopicDeletionDisabledError,
    UnknownTopicError,
    UnknownTopicIdError,
)
from ottla.server.metadata.features import DEFAULT_FEATURES
from ottla.server.metadata.image import (
    INTERNAL_TOPICS,
    NO_LEADER,
    BrokerImage,
    ConfigResource,
    MetadataDelta,
    MetadataImage,
    PartitionState,
    QuotaEntity,
    ResourceType,
    TopicImage,
)
from ottla.server.metadata.loader import MetadataLoader, Subscriber
from ottla.server.metadata.store import (
    NO_LEASE,
    Compare,
    Delete,
    DeletePrefix,
    MetadataStore,
    Operation,
    Put,
)
from ottla.server.metadata.topic_names import CollisionIndex
from ottla.server.settings.config import BrokerConfig
from ottla.server.settings.mirrored import MIRROR_SETTING

if TYPE_CHECKING:
    from ottla.server.metadata.acls import Acl, AclFilter
    from ottla.server.metadata.config_changes import ConfigChange
    from ottla.server.metadata.delegation_tokens import DelegationToken, TokenChanges
    from ottla.server.metadata.feature_changes import FeatureUpdate
    from ottla.server.metadata.partition_changes import PartitionUpdate
    from ottla.server.metadata.partition_transactions import PartitionKey, PartitionOutcome
    from ottla.server.metadata.scram_changes import ScramDeletion, ScramUpsertion
    from ottla.server.metadata.topic_changes import NewPartitions, NewTopic

R = TypeVar("R")

#: Counts partitions that a topic gains or loses against a client's quota; raises ThrottlingQuotaExceededError.
TakeQuota = Callable[[str, int], None]

#: Partitions that one request may create (org.apache.kafka.controller.ReplicationControlManager).
MAX_PARTITIONS_PER_REQUEST: Final = 10_000

#: How long changes may take that are under way when the node stops.
SHUTDOWN_SECONDS: Final = 1.0

_MAX_ATTEMPTS: Final = 20
_PRODUCER_ID_BLOCK: Final = 1000
#: Clusters count producer ids from zero. One that mirrors others begins at a random multiple of this.
_FIRST_ID_APART: Final = 1 << 32
_UUID_BITS_LEFT_OUT: Final = 128 - 28


def _no_quota(_topic: str, _partitions: int) -> None:
    pass


def _once(take_quota: TakeQuota) -> TakeQuota:
    """Charges each topic once, although a conflict in the store has a change planned again."""
    charged: set[str] = set()

    def take(topic: str, partitions: int) -> None:
        if topic not in charged:
            take_quota(topic, partitions)
            charged.add(topic)

    return take


class Controller:
    """Changes topics, configs, features and quotas, and shows them in `image`.

    Every change is planned on the present image, committed with a compare-and-swap on the keys that the plan
    depends on, and planned again if somebody else was faster. A method returns only when this node's
    subscribers (replica manager, coordinators, …) have applied the change: a topic that was created takes
    records at once. Methods that take several things answer for each of them, with the result or with the
    MetadataError that says why there is none; what is wrong with one does not affect the others.
    """

    def __init__(
        self,
        store: MetadataStore,
        config: BrokerConfig,
        *,
        node_id: int,
        new_uuid: Callable[[], UUID] = uuid4,
        note_start: Callable[[int], None] = lambda count: None,
    ) -> None:
        """`note_start` is told the number of this start before that is committed."""
        self.node_id = node_id
        self._store = store
        self._config = config
        self._new_uuid = new_uuid
        self._note_start = note_start
        self._collisions = CollisionIndex()
        self._loader = MetadataLoader(store)
        self._loader.subscribe(self._observe)
        self._under_way: set[trio.CancelScope] = set()
        self._shuts_down_at = inf

    @property
    def image(self) -> MetadataImage:
        """The metadata as this node's parts have applied it."""
        return self._loader.image

    async def next_image(self) -> MetadataImage:
        """Wait until the image shows the next change."""
        return await self._loader.next_image()

    async def publish_again(self, partitions: Iterable[tuple[UUID, int]]) -> None:
        """Tell this node's parts of these partitions as if they had changed: some may have failed to follow them."""
        await self._loader.publish_again(partitions)

    def subscribe(self, subscriber: Subscriber) -> None:
        """Call `subscriber` for every change, first for everything there is; subscribe before `run`."""
        self._loader.subscribe(subscriber)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Found the cluster if it is new, count this start, then follow the store until cancelled.

        Reports that it has started once everything is loaded. From then on this node leads in new epochs, by which
        clients find out what its last process may have lost (KIP-320).
        """
        await self._found_cluster()
        await self._count_start()
        await self._loader.run(task_status=task_status)

    async def catch_up(self) -> None:
        """Return once the image shows everything that was committed before this call; raises StoreUnavailableError."""
        with self._until_shutdown():
            await self._loader.wait_for((await self._store.list(keys.CLUSTER)).committed)

    def begin_shutdown(self) -> None:
        """Let nothing wait for the store any longer than `SHUTDOWN_SECONDS`, however often a change was overtaken.

        What has not ended by then raises StoreUnavailableError: it may have been committed.
        """
        self._shuts_down_at = trio.current_time() + SHUTDOWN_SECONDS
        for scope in self._under_way:
            scope.deadline = self._shuts_down_at

    async def register_broker(self, broker: BrokerImage, lease: int = NO_LEASE, *, is_new: bool = True) -> None:
        """Register a broker, alive while the lease lasts; it becomes the controller if there is none.

        A fenced one is only registered. Raises DuplicateBrokerIdError if another process is alive under its id,
        LeaseExpiredError if the lease is over. A process that `is_new` takes over from one that had the same folder.
        """
        known, session = keys.broker(broker.node_id), keys.alive(broker.node_id)

        async def plan(image: MetadataImage) -> _Plan[None]:
            other = image.sessions.get(broker.node_id)
            is_former = other is not None and is_new and other.directory_id == broker.directory_id
            if other is not None and other.incarnation != broker.incarnation and not is_former:
                raise DuplicateBrokerIdError(f"Another process runs as node {broker.node_id}; this one has to stop.")
            if self._loader.revision_of(keys.MOVED):
                raise StoreUnavailableError("The metadata of this cluster has moved to another store.")
            compares = [Compare(session, self._loader.revision_of(session)), Compare(keys.MOVED, 0)]
            operations = [Put(known, keys.encode_broker(broker))]
            if not broker.fenced:
                operations.append(Put(session, keys.encode_session(broker), lease))
                if image.controller_id in (NO_LEADER, broker.node_id):
                    compares.append(Compare(keys.CONTROLLER, self._loader.revision_of(keys.CONTROLLER)))
                    operations.append(Put(keys.CONTROLLER, keys.encode(broker.node_id), lease))
            return compares, operations, None

        await self._transact(plan)

    async def renew_registration(self) -> None:
        """Begin another broker epoch: nobody who saw this broker catch up in the one before counts it in (KIP-903)."""
        key = keys.broker(self.node_id)

        async def plan(image: MetadataImage) -> _Plan[None]:
            broker = image.brokers.get(self.node_id)
            if broker is None:
                return [], [], None
            return [Compare(key, self._loader.revision_of(key))], [Put(key, keys.encode_broker(broker))], None

        await self._transact(plan)

    async def fence_broker(self, broker: BrokerImage) -> None:
        """End a broker's session, and its controllership with it, unless it has begun another one."""
        session = keys.alive(broker.node_id)

        async def plan(image: MetadataImage) -> _Plan[None]:
            known = image.brokers.get(broker.node_id)
            if known is None or known.fenced or known.epoch != broker.epoch:
                return [], [], None
            compares = [Compare(session, self._loader.revision_of(session))]
            operations: list[Operation] = [Delete(session)]
            if image.controller_id == broker.node_id:
                compares.append(Compare(keys.CONTROLLER, self._loader.revision_of(keys.CONTROLLER)))
                operations.append(Delete(keys.CONTROLLER))
            return compares, operations, None

        await self._transact(plan)

    async def become_controller(self, lease: int) -> None:
        """Make this node the cluster's controller while the lease lasts, unless another one is. LeaseExpiredError."""

        async def plan(image: MetadataImage) -> _Plan[None]:
            if image.controller_id != NO_LEADER:
                return [], [], None
            return [Compare(keys.CONTROLLER, 0)], [Put(keys.CONTROLLER, keys.encode(self.node_id), lease)], None

        await self._transact(plan)

    async def unregister_broker(self, node_id: int) -> None:
        """Forget a broker that is gone; raises BrokerIdNotRegisteredError or InvalidRequestError.

        First it leaves every in-sync set with others in it, and is no eligible leader any more: whoever starts under
        its id afterwards may have nothing of what it had, and no registration would tell.
        """
        from ottla.server.metadata.partition_changes import leave
        from ottla.server.metadata.partition_transactions import changes_of_all

        async def plan(image: MetadataImage) -> _Plan[dict[PartitionKey, PartitionUpdate]]:
            broker = image.brokers.get(node_id)
            if broker is None:
                raise BrokerIdNotRegisteredError(f"Broker ID {node_id} is not currently registered")
            if node_id == self.node_id or not broker.fenced:
                raise InvalidRequestError(f"Broker {node_id} is running; stop it first.")
            changes = await changes_of_all(image, leave, node_id)
            if changes:
                return [], [], changes
            # It joins no set without being registered again, which the comparison finds.
            key = keys.broker(node_id)
            compares = [Compare(key, self._loader.revision_of(key)), Compare(keys.alive(node_id), 0)]
            return compares, [Delete(key)], {}

        for _ in range(_MAX_ATTEMPTS):
            changes = await self._transact(plan)
            if not changes:
                return
            await self.change_partitions(changes)
        raise ConflictError("The in-sync sets keep being changed elsewhere.")

    # Topics ---------------------------------------------------------------------------------------------------------

    async def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False, take_quota: TakeQuota = _no_quota
    ) -> dict[str, TopicImage | MetadataError]:
        """Create topics, or only say what would be created. Names are distinct."""
        from ottla.server.metadata.topic_changes import begin, partitions_of, plan_topic

        _check_total(partitions_of(topic, self._config) for topic in topics)
        chosen = {topic.name: self._topic_id() for topic in topics}
        take_once = _once(take_quota)

        async def plan(image: MetadataImage) -> _Plan[dict[str, TopicImage | MetadataError]]:
            results: dict[str, TopicImage | MetadataError] = {}
            compares: list[Compare] = []
            operations: list[Operation] = []
            here = CollisionIndex()
            pace = Pace()
            for topic in topics:
                await pace.rest()
                try:
                    replicas, configs = await plan_topic(topic, image, (self._collisions, here), self._config)
                    topic_id = chosen[topic.name]
                    states, puts = begin(topic_id, replicas, image)
                    take_once(topic.name, len(replicas))
                except MetadataError as error:
                    results[topic.name] = kept(error)
                    continue
                here.add(topic.name)
                results[topic.name] = TopicImage(topic.name, topic_id, states, configs)
                compares.append(Compare(keys.topic(topic.name), 0))
                operations.append(Put(keys.topic(topic.name), keys.encode_topic(topic_id, replicas, configs)))
                operations += puts
            return compares, [] if validate_only else operations, results

        return await self._transact(plan)

    async def create_topic(self, topic: NewTopic, *, take_quota: TakeQuota = _no_quota) -> TopicImage:
        """Create one topic; raises MetadataError."""
        result = (await self.create_topics([topic], take_quota=take_quota))[topic.name]
        if isinstance(result, MetadataError):
            raise result
        return result

    async def ensure_topic(self, name: str, *, take_quota: TakeQuota = _no_quota) -> TopicImage:
        """The topic of this name, created with the broker's defaults (or an internal topic's own) if absent."""
        existing = self.image.topic(name)
        if existing is not None:
            return existing
        from ottla.server.metadata.internal_topics import internal_topic
        from ottla.server.metadata.topic_changes import USE_DEFAULT, NewTopic

        asked = NewTopic(name, USE_DEFAULT, USE_DEFAULT)
        if name in INTERNAL_TOPICS:
            asked = internal_topic(name, self._config, len(self.image.brokers))
        try:
            return await self.create_topic(asked, take_quota=take_quota)
        except MetadataError:
            # Somebody else may have created it in between.
            existing = self.image.topic(name)
            if existing is None:
                raise
            return existing

    async def delete_topics(
        self, topic_ids: Sequence[UUID], *, take_quota: TakeQuota = _no_quota
    ) -> dict[UUID, MetadataError | None]:
        """Delete topics with everything that belongs to them."""
        if not self._config.delete_topic_enable:
            raise TopicDeletionDisabledError("Topic deletion is disabled.")
        take_once = _once(take_quota)

        async def plan(image: MetadataImage) -> _Plan[dict[UUID, MetadataError | None]]:
            results: dict[UUID, MetadataError | None] = {}
            compares: list[Compare] = []
            operations: list[Operation] = []
            pace = Pace()
            for topic_id in topic_ids:
                await pace.rest()
                topic = image.topic_by_id(topic_id)
                results[topic_id] = None
                if topic is None:
                    results[topic_id] = UnknownTopicIdError("This server does not host this topic ID.")
                    continue
                try:
                    take_once(topic.name, len(topic.partitions))
                except MetadataError as error:
                    results[topic_id] = kept(error)
                    continue
                compares.append(Compare(keys.topic(topic.name), topic.revision))
                operations.append(Delete(keys.topic(topic.name)))
                operations.append(DeletePrefix(keys.partitions_of(topic_id)))
            return compares, operations, results

        return await self._transact(plan)

    async def create_partitions(
        self, asked: Sequence[NewPartitions], *, validate_only: bool = False, take_quota: TakeQuota = _no_quota
    ) -> dict[str, MetadataError | None]:
        """Add partitions to topics. Names are distinct."""
        from ottla.server.metadata.topic_changes import added_partitions, begin, plan_partitions

        take_once = _once(take_quota)

        async def plan(image: MetadataImage) -> _Plan[dict[str, MetadataError | None]]:
            _check_total(added_partitions(one, image) for one in asked)
            results: dict[str, MetadataError | None] = {}
            compares: list[Compare] = []
            operations: list[Operation] = []
            pace = Pace()
            for one in asked:
                await pace.rest()
                try:
                    topic = image.topic(one.name)
                    if topic is None:
                        raise UnknownTopicError
                    added = await plan_partitions(one, topic, image)
                    _, puts = begin(topic.topic_id, added, image, first=len(topic.partitions))
                    take_once(one.name, len(added))
                except MetadataError as error:
                    results[one.name] = kept(error)
                    continue
                results[one.name] = None
                replicas = [*(state.replicas for state in topic.partitions), *added]
                value = keys.encode_topic(topic.topic_id, replicas, topic.configs)
                compares.append(Compare(keys.topic(one.name), topic.revision))
                operations.append(Put(keys.topic(one.name), value))
                operations += puts
            return compares, [] if validate_only else operations, results

        return await self._transact(plan)

    async def change_partition(self, topic: str, partition: int, update: PartitionUpdate) -> PartitionState:
        """Replace a partition's state by `update(state)`, which may raise a MetadataError to refuse."""
        image = self.image.topic(topic)
        if image is None:
            raise UnknownTopicError("This server does not host this topic-partition.")
        key = (image.topic_id, partition)
        result = (await self.change_partitions({key: update}))[key]
        if isinstance(result, MetadataError):
            raise result
        return result

    async def change_partitions(
        self, asked: Mapping[PartitionKey, PartitionUpdate]
    ) -> dict[PartitionKey, PartitionOutcome]:
        """Replace the states of partitions, by topic id and number, each by what its update makes of it.

        In as few transactions as stores allow; an update is called again if somebody else was faster. Each partition
        has a result of its own: its state, or why it was not changed.
        """
        from ottla.server.metadata.eligible_leaders import min_in_sync
        from ottla.server.metadata.partition_transactions import in_transactions, plan_changes

        results: dict[PartitionKey, PartitionOutcome] = {}
        pace = Pace()
        for part in in_transactions(asked):
            await pace.rest()

            async def plan(
                image: MetadataImage, part: Mapping[PartitionKey, PartitionUpdate] = part
            ) -> _Plan[dict[PartitionKey, PartitionOutcome]]:
                return plan_changes(part, image, self._loader.revision_of, min_in_sync(image, self._config))

            results |= await self._transact(plan)
        return results

    # Configs, quotas, features --------------------------------------------------------------------------------------

    async def alter_configs(
        self,
        asked: Mapping[ConfigResource, Sequence[ConfigChange]],
        *,
        replace: bool = False,
        validate_only: bool = False,
    ) -> dict[ConfigResource, MetadataError | None]:
        """Change the configs of resources; with `replace`, those that are not named are removed.

        `ottla.mirror` stays if it is not named. Before it changes, the topic's partitions are in new leader epochs.
        """
        from ottla.server.metadata.config_changes import change_configs, check_configs, check_mirroring

        if not validate_only:
            await self._begin_epochs_of_mirrors(asked)

        async def plan(image: MetadataImage) -> _Plan[dict[ConfigResource, MetadataError | None]]:
            results: dict[ConfigResource, MetadataError | None] = {}
            compares: list[Compare] = []
            operations: list[Operation] = []
            pace = Pace()
            for resource, changes in asked.items():
                await pace.rest()
                try:
                    current = image.resource_configs(resource)
                    kept_ones = {MIRROR_SETTING: current[MIRROR_SETTING]} if MIRROR_SETTING in current else {}
                    configs = change_configs(resource, kept_ones if replace else current, changes)
                    check_configs(resource, configs, image, self.node_id, self._config)
                    check_mirroring(resource, current, configs)
                except MetadataError as error:
                    results[resource] = kept(error)
                    continue
                results[resource] = None
                if configs == image.resource_configs(resource):
                    continue
                operation = _put_configs(resource, configs, image)
                compares.append(Compare(operation.key, self._loader.revision_of(operation.key)))
                operations.append(operation)
            return compares, [] if validate_only else operations, results

        return await self._transact(plan)

    async def _begin_epochs_of_mirrors(self, asked: Mapping[ConfigResource, Sequence[ConfigChange]]) -> None:
        """What a mirror got from its source and what is written to it afterwards must be of different epochs."""
        from ottla.server.metadata.partition_changes import in_next_epoch

        changing = {
            resource.name
            for resource, changes in asked.items()
            if resource.type is ResourceType.TOPIC and any(change.name == MIRROR_SETTING for change in changes)
        }
        topics = (self.image.topic(name) for name in changing)
        updates: dict[PartitionKey, PartitionUpdate] = {
            (topic.topic_id, index): in_next_epoch
            for topic in topics
            if topic is not None and topic.is_mirrored
            for index in range(len(topic.partitions))
        }
        if updates:
            await self.change_partitions(updates)

    async def alter_client_quotas(
        self, asked: Mapping[QuotaEntity, Mapping[str, float | None]], *, validate_only: bool = False
    ) -> dict[QuotaEntity, MetadataError | None]:
        """Set and remove (None) quotas of entities."""
        from ottla.server.metadata.quota_changes import change_quota

        async def plan(image: MetadataImage) -> _Plan[dict[QuotaEntity, MetadataError | None]]:
            results: dict[QuotaEntity, MetadataError | None] = {}
            compares: list[Compare] = []
            operations: list[Operation] = []
            pace = Pace()
            for entity, changes in asked.items():
                await pace.rest()
                current = image.quotas.get(entity, {})
                try:
                    after = change_quota(entity, current, changes)
                except MetadataError as error:
                    results[entity] = kept(error)
                    continue
                results[entity] = None
                if after != current:
                    key = keys.quota(entity)
                    compares.append(Compare(key, self._loader.revision_of(key)))
                    operations.append(Put(key, keys.encode(after)) if after else Delete(key))
            return compares, [] if validate_only else operations, results

        return await self._transact(plan)

    async def alter_scram_credentials(
        self, deletions: Sequence[ScramDeletion], upsertions: Sequence[ScramUpsertion]
    ) -> dict[str, MetadataError | None]:
        """Set and remove credentials; the answer is by user."""
        from ottla.server.metadata.scram_changes import plan_scram

        async def plan(image: MetadataImage) -> _Plan[dict[str, MetadataError | None]]:
            changes, errors = plan_scram(image.scram_credentials, deletions, upsertions)
            compares = [Compare(key, self._loader.revision_of(key)) for key in map(keys.scram, changes)]
            operations: list[Operation] = [
                Delete(keys.scram(key)) if credential is None else Put(keys.scram(key), keys.encode_scram(credential))
                for key, credential in changes.items()
            ]
            return compares, operations, errors

        return await self._transact(plan)

    async def change_delegation_tokens(self, change: Callable[[Mapping[str, DelegationToken]], TokenChanges]) -> None:
        """Change delegation tokens: `change` maps the present ones to changes, or raises a MetadataError to refuse."""

        async def plan(image: MetadataImage) -> _Plan[None]:
            changes = {
                keys.delegation_token(token_id): token for token_id, token in change(image.delegation_tokens).items()
            }
            compares = [Compare(key, self._loader.revision_of(key)) for key in changes]
            operations: list[Operation] = [
                Delete(key) if token is None else Put(key, keys.encode_delegation_token(token))
                for key, token in changes.items()
            ]
            return compares, operations, None

        await self._transact(plan)

    async def create_acls(self, acls: Sequence[Acl]) -> None:
        """Add entries; those that exist already stay."""

        async def plan(image: MetadataImage) -> _Plan[None]:
            new = [acl for acl in dict.fromkeys(acls) if acl not in image.acls]
            compares = [Compare(keys.acl(it), self._loader.revision_of(keys.acl(it))) for it in new]
            return compares, [Put(keys.acl(it), keys.encode({})) for it in new], None

        await self._transact(plan)

    async def delete_acls(self, filters: Sequence[AclFilter]) -> list[list[Acl]]:
        """Remove the entries that any of the filters matches; returns those of each filter."""
        from ottla.server.metadata.acls import matching

        async def plan(image: MetadataImage) -> _Plan[list[list[Acl]]]:
            found = matching(image.acls, filters)
            gone = [keys.acl(it) for it in dict.fromkeys(acl for acls in found for acl in acls)]
            compares = [Compare(key, self._loader.revision_of(key)) for key in gone]
            return compares, [Delete(key) for key in gone], found

        return await self._transact(plan)

    async def update_features(self, updates: Sequence[FeatureUpdate], *, validate_only: bool = False) -> None:
        """Set the finalized levels of features, all or none; raises InvalidUpdateVersionError."""
        from ottla.server.metadata.feature_changes import change_feature

        async def plan(image: MetadataImage) -> _Plan[None]:
            levels = dict(image.features)
            operations: list[Operation] = []
            for update in updates:
                level = change_feature(levels, update, self.node_id)
                levels[update.name] = level
                operations.append(Put(keys.feature(update.name), keys.encode(level)))
            compares = [
                Compare(put.key, self._loader.revision_of(put.key)) for put in operations if isinstance(put, Put)
            ]
            return compares, [] if validate_only else operations, None

        await self._transact(plan)

    async def allocate_producer_ids(self, count: int = _PRODUCER_ID_BLOCK) -> range:
        """Producer ids that are given to nobody else, ever."""
        with self._until_shutdown():
            for _ in range(_MAX_ATTEMPTS):
                entry = await self._store.get(keys.PRODUCER_IDS)
                first = 0 if entry is None else int(keys.decode(entry.value))
                compare = Compare(keys.PRODUCER_IDS, 0 if entry is None else entry.mod_revision)
                put = Put(keys.PRODUCER_IDS, keys.encode(first + count))
                if await self._store.commit([compare], [put]) is not None:
                    return range(first, first + count)
        raise ConflictError("Producer ids are being allocated elsewhere all the time.")

    async def set_producer_ids_apart(self) -> None:
        """From now on give out no producer id that another cluster may have given out, whose records come here."""
        for _ in range(_MAX_ATTEMPTS):
            entry = await self._store.get(keys.PRODUCER_IDS)
            if entry is not None and int(keys.decode(entry.value)) >= _FIRST_ID_APART:
                return
            first = _FIRST_ID_APART * (1 + (self._new_uuid().int >> _UUID_BITS_LEFT_OUT))
            compare = Compare(keys.PRODUCER_IDS, 0 if entry is None else entry.mod_revision)
            if await self._store.commit([compare], [Put(keys.PRODUCER_IDS, keys.encode(first))]) is not None:
                return
        raise ConflictError("Producer ids are being allocated elsewhere all the time.")

    # ----------------------------------------------------------------------------------------------------------------

    async def _transact(self, plan: Callable[[MetadataImage], Awaitable[_Plan[R]]]) -> R:
        """Commit what `plan` makes of the present image, and return when it is applied here.

        A plan of many things lets others run in between: an image never changes, and the comparison of keys finds what
        was committed meanwhile.
        """
        with self._until_shutdown():
            for _ in range(_MAX_ATTEMPTS):
                compares, operations, result = await plan(self.image)
                if not operations:
                    return result
                revision = await self._store.commit(compares, operations)
                if revision is not None:
                    await self._loader.wait_for(revision)
                    return result
                await self.catch_up()
        raise ConflictError("The metadata keeps being changed elsewhere.")

    @contextmanager
    def _until_shutdown(self) -> Iterator[None]:
        """What is in it waits for the store, and ends when the node stops, as `begin_shutdown` says."""
        with trio.CancelScope(deadline=self._shuts_down_at) as scope:
            self._under_way.add(scope)
            try:
                yield
            finally:
                self._under_way.discard(scope)
        if scope.cancelled_caught:
            # As Kafka's controller says it, which answers REQUEST_TIMED_OUT as well.
            raise StoreUnavailableError("The controller is shutting down.")

    async def _found_cluster(self) -> None:
        """Write what a new cluster begins with, unless there is a cluster."""
        puts = [Put(keys.CLUSTER_ID, keys.encode(_base64(self._topic_id())))]
        puts += [Put(keys.feature(name), keys.encode(level)) for name, level in DEFAULT_FEATURES.items()]
        await self._store.commit([Compare(keys.CLUSTER_ID, 0)], puts)

    async def _count_start(self) -> None:
        """Count this start: in one key, however many partitions there are, and durably before anything is appended in
        the new epochs.

        A node that is registered but was never counted was last run by a release that did not have the key.
        """
        key = keys.starts(self.node_id)
        for _ in range(_MAX_ATTEMPTS):
            entry = await self._store.get(key)
            if entry is None:
                count = int(await self._store.get(keys.broker(self.node_id)) is not None)
            else:
                count = int(keys.decode(entry.value)) + 1
            self._note_start(count)
            compare = Compare(key, 0 if entry is None else entry.mod_revision)
            if await self._store.commit([compare], [Put(key, keys.encode(count))]) is not None:
                return
        raise ConflictError(f"Other processes keep starting as node {self.node_id}.")

    async def _observe(self, delta: MetadataDelta) -> None:
        """Update what the controller itself derives from the metadata; it is the first of all subscribers."""
        for topic in delta.deleted_topics:
            self._collisions.remove(topic.name)
        for topic in delta.created_topics:
            self._collisions.add(topic.name)
        if any(resource.type is ResourceType.BROKER for resource in delta.changed_configs):
            own = ConfigResource(ResourceType.BROKER, str(self.node_id))
            default = ConfigResource(ResourceType.BROKER, "")
            self._config.set_dynamic(delta.after.resource_configs(own), delta.after.resource_configs(default))

    def _topic_id(self) -> UUID:
        """A random id whose text does not begin with '-', which tools would take for an option."""
        while True:
            topic_id = self._new_uuid()
            if not _base64(topic_id).startswith("-") and topic_id.int > 1:
                return topic_id


_Plan = tuple[Sequence[Compare], Sequence[Operation], R]


def _put_configs(resource: ConfigResource, configs: Mapping[str, str], image: MetadataImage) -> Put | Delete:
    if resource.type is ResourceType.TOPIC:
        topic = image.topics[resource.name]
        replicas = [state.replicas for state in topic.partitions]
        return Put(keys.topic(topic.name), keys.encode_topic(topic.topic_id, replicas, configs))
    key = keys.configs(resource)
    return Put(key, keys.encode(dict(configs))) if configs else Delete(key)


def _check_total(new_partitions: Iterable[int]) -> None:
    """Called before any partition is placed: a request may ask for billions of them."""
    if sum(new_partitions) > MAX_PARTITIONS_PER_REQUEST:
        raise PolicyViolationError("Excessively large number of partitions per request.")


def _base64(value: UUID) -> str:
    return urlsafe_b64encode(value.bytes).decode().rstrip("=")
