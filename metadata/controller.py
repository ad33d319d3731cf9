"""The controller: every change of the cluster's metadata goes through here.

What a change consists of is decided in the modules that `transactions` names, each loaded when the first change of its
kind is asked for.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

import trio

from ottla.metadata.bootstrap import count_start, found_cluster, random_id
from ottla.metadata.changes.broker_transactions import (
    controllership,
    fencing,
    registration,
    renewal,
    unregistration,
)
from ottla.metadata.changes.partition_transactions import in_transactions, states_change
from ottla.metadata.changes.transactions import MAX_ATTEMPTS, Transactions
from ottla.metadata.image import (
    INTERNAL_TOPICS,
    BrokerImage,
    ConfigResource,
    MetadataDelta,
    MetadataImage,
    QuotaEntity,
    TopicImage,
)
from ottla.metadata.loader import MetadataLoader, Subscriber
from ottla.metadata.producer_ids import BLOCK_LENGTH, allocate_block, set_apart
from ottla.metadata.stored_settings import StoredSettings
from ottla.metadata.topic_names import CollisionIndex
from ottla.metastore.errors import ConflictError, MetadataError
from ottla.metastore.store import NO_LEASE, MetadataStore
from ottla.runtime.time_slice import TimeSlice
from ottla.settings.config import BrokerConfig

if TYPE_CHECKING:
    from ottla.metadata.acls import Acl, AclFilter
    from ottla.metadata.changes.config_changes import ConfigChange
    from ottla.metadata.changes.feature_changes import FeatureUpdate
    from ottla.metadata.changes.partition_changes import PartitionUpdate
    from ottla.metadata.changes.partition_transactions import PartitionKey, PartitionOutcome
    from ottla.metadata.changes.topic_changes import NewPartitions, NewTopic
    from ottla.metadata.changes.topic_transactions import TakeQuota
    from ottla.metadata.delegation_tokens import DelegationToken, TokenChanges
    from ottla.metadata.scram_changes import ScramDeletion, ScramUpsertion


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
        self._setting_checks: list[Callable[[BrokerConfig], Awaitable[None]]] = []
        self.loader = MetadataLoader(store)
        self.loader.subscribe(self._observe)
        self.loader.subscribe(StoredSettings(config, node_id).follow)
        self._transactions = Transactions(store, self.loader)

    @property
    def image(self) -> MetadataImage:
        """The metadata as this node's parts have applied it."""
        return self.loader.image

    async def next_image(self) -> MetadataImage:
        """Wait until the image shows the next change."""
        return await self.loader.next_image()

    async def publish_again(self, partitions: Iterable[tuple[UUID, int]]) -> None:
        """Tell this node's parts of these partitions as if they had changed: some may have failed to follow them."""
        await self.loader.publish_again(partitions)

    def subscribe(self, subscriber: Subscriber) -> None:
        """Call `subscriber` for every change, first for everything there is; subscribe before `run`."""
        self.loader.subscribe(subscriber)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Found the cluster if it is new, count this start, then follow the store until cancelled.

        Reports that it has started once everything is loaded. From then on this node leads in new epochs, by which
        clients find out what its last process may have lost (KIP-320).
        """
        await found_cluster(self._store, self._new_uuid)
        await count_start(self._store, self.node_id, self._note_start)
        await self.loader.run(task_status=task_status)

    def check_settings_with(self, check: Callable[[BrokerConfig], Awaitable[None]]) -> None:
        """Before this broker's settings change, `check` raises a MetadataError if it cannot go on with the new ones.

        Kafka's counterpart is Reconfigurable.validateReconfiguration.
        """
        self._setting_checks.append(check)

    async def _can_use(self, config: BrokerConfig) -> None:
        for check in self._setting_checks:
            await check(config)

    async def catch_up(self) -> None:
        """Return once the image shows everything that was committed before this call; raises StoreUnavailableError."""
        await self._transactions.catch_up()

    def begin_shutdown(self) -> None:
        """Let nothing wait for the store any longer than `SHUTDOWN_SECONDS`, however often a change was overtaken.

        What has not ended by then raises StoreUnavailableError: it may have been committed.
        """
        self._transactions.begin_shutdown()

    # Brokers --------------------------------------------------------------------------------------------------------

    async def register_broker(self, broker: BrokerImage, lease: int = NO_LEASE, *, is_new: bool = True) -> None:
        """Register a broker, alive while the lease lasts; it becomes the controller if there is none.

        A fenced one is only registered. Raises DuplicateBrokerIdError if another process is alive under its id,
        LeaseExpiredError if the lease is over. A process that `is_new` takes over from one that had the same folder.
        """
        await self._transactions.commit(registration(broker, lease, is_new=is_new))

    async def renew_registration(self) -> None:
        """Begin another broker epoch: nobody who saw this broker catch up in the one before counts it in (KIP-903)."""
        await self._transactions.commit(renewal(self.node_id))

    async def fence_broker(self, broker: BrokerImage) -> None:
        """End a broker's session, and its controllership with it, unless it has begun another one."""
        await self._transactions.commit(fencing(broker))

    async def become_controller(self, lease: int) -> None:
        """Make this node the cluster's controller while the lease lasts, unless another one is. LeaseExpiredError."""
        await self._transactions.commit(controllership(self.node_id, lease))

    async def unregister_broker(self, node_id: int) -> None:
        """Forget a broker that is gone; raises BrokerIdNotRegisteredError or InvalidRequestError.

        First it is removed from every in-sync set with other members, and from the eligible leaders: the next broker
        with its id may have none of its data, and without a registration nothing would show that.
        """
        for _ in range(MAX_ATTEMPTS):
            changes = await self._transactions.commit(unregistration(node_id, self.node_id))
            if not changes:
                return
            await self.change_partitions(changes)
        raise ConflictError("The in-sync sets keep being changed elsewhere.")

    # Topics ---------------------------------------------------------------------------------------------------------

    async def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False, take_quota: TakeQuota | None = None
    ) -> dict[str, TopicImage | MetadataError]:
        """Create topics, or only say what would be created. Names are distinct."""
        from ottla.metadata.changes.topic_transactions import creation

        plan = creation(topics, self._config, self._collisions, self._topic_id, take_quota, validate_only=validate_only)
        return await self._transactions.commit(plan)

    async def create_topic(self, topic: NewTopic, *, take_quota: TakeQuota | None = None) -> TopicImage:
        """Create one topic; raises MetadataError."""
        result = (await self.create_topics([topic], take_quota=take_quota))[topic.name]
        if isinstance(result, MetadataError):
            raise result
        return result

    async def ensure_topic(self, name: str, *, take_quota: TakeQuota | None = None) -> TopicImage:
        """The topic of this name, created with the broker's defaults (or an internal topic's own) if absent."""
        existing = self.image.topic(name)
        if existing is not None:
            return existing
        from ottla.metadata.changes.topic_changes import USE_DEFAULT, NewTopic
        from ottla.metadata.internal_topics import internal_topic

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
        self, topic_ids: Sequence[UUID], *, take_quota: TakeQuota | None = None
    ) -> dict[UUID, MetadataError | None]:
        """Delete topics with everything that belongs to them; raises TopicDeletionDisabledError."""
        from ottla.metadata.changes.topic_transactions import deletion

        return await self._transactions.commit(deletion(topic_ids, self._config, take_quota))

    async def create_partitions(
        self, asked: Sequence[NewPartitions], *, validate_only: bool = False, take_quota: TakeQuota | None = None
    ) -> dict[str, MetadataError | None]:
        """Add partitions to topics. Names are distinct."""
        from ottla.metadata.changes.topic_transactions import growth

        return await self._transactions.commit(growth(asked, take_quota, validate_only=validate_only))

    async def change_partitions(
        self, asked: Mapping[PartitionKey, PartitionUpdate]
    ) -> dict[PartitionKey, PartitionOutcome]:
        """Replace the states of partitions, by topic id and number, each by what its update makes of it.

        In as few transactions as stores allow; an update is called again if somebody else was faster. Each partition
        has a result of its own: its state, or why it was not changed.
        """
        results: dict[PartitionKey, PartitionOutcome] = {}
        time_slice = TimeSlice()
        for part in in_transactions(asked):
            await time_slice.maybe_yield()
            results |= await self._transactions.commit(states_change(part, self._config))
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
        from ottla.metadata.changes.config_transactions import configs_change, epochs_of_mirrors

        if not validate_only and (epochs := epochs_of_mirrors(asked, self.image)):
            await self.change_partitions(epochs)
        plan = configs_change(
            asked, self.node_id, self._config, replace=replace, validate_only=validate_only, can_use=self._can_use
        )
        return await self._transactions.commit(plan)

    async def alter_client_quotas(
        self, asked: Mapping[QuotaEntity, Mapping[str, float | None]], *, validate_only: bool = False
    ) -> dict[QuotaEntity, MetadataError | None]:
        """Set and remove (None) quotas of entities."""
        from ottla.metadata.changes.config_transactions import quotas_change

        return await self._transactions.commit(quotas_change(asked, validate_only=validate_only))

    async def update_features(self, updates: Sequence[FeatureUpdate], *, validate_only: bool = False) -> None:
        """Set the finalized levels of features, all or none; raises InvalidUpdateVersionError."""
        from ottla.metadata.changes.config_transactions import features_update

        await self._transactions.commit(features_update(updates, self.node_id, validate_only=validate_only))

    # Credentials, tokens, ACLs --------------------------------------------------------------------------------------

    async def alter_scram_credentials(
        self, deletions: Sequence[ScramDeletion], upsertions: Sequence[ScramUpsertion]
    ) -> dict[str, MetadataError | None]:
        """Set and remove credentials; the answer is by user."""
        from ottla.metadata.changes.access_transactions import credentials_change

        return await self._transactions.commit(credentials_change(deletions, upsertions))

    async def change_delegation_tokens(self, change: Callable[[Mapping[str, DelegationToken]], TokenChanges]) -> None:
        """Change delegation tokens: `change` maps the present ones to changes, or raises a MetadataError to refuse."""
        from ottla.metadata.changes.access_transactions import tokens_change

        await self._transactions.commit(tokens_change(change))

    async def create_acls(self, acls: Sequence[Acl]) -> None:
        """Add entries; those that exist already stay."""
        from ottla.metadata.changes.access_transactions import acls_creation

        await self._transactions.commit(acls_creation(acls))

    async def delete_acls(self, filters: Sequence[AclFilter]) -> list[list[Acl]]:
        """Remove the entries that any of the filters matches; returns those of each filter."""
        from ottla.metadata.changes.access_transactions import acls_deletion

        return await self._transactions.commit(acls_deletion(filters))

    # Producer ids ---------------------------------------------------------------------------------------------------

    async def allocate_producer_ids(self, count: int = BLOCK_LENGTH) -> range:
        """Producer ids that are given to nobody else, ever."""
        with self._transactions.until_shutdown():
            return await allocate_block(self._store, count)

    async def set_producer_ids_apart(self) -> None:
        """From now on give out no producer id that another cluster may have given out, whose records come here."""
        await set_apart(self._store, self._new_uuid)

    # ----------------------------------------------------------------------------------------------------------------

    async def _observe(self, delta: MetadataDelta) -> None:
        """Update what the controller itself derives from the metadata; it is the first of all subscribers."""
        for topic in delta.deleted_topics:
            self._collisions.remove(topic.name)
        for topic in delta.created_topics:
            self._collisions.add(topic.name)

    def _topic_id(self) -> UUID:
        return random_id(self._new_uuid)
