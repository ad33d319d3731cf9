"""Topics, configs and the rest through the controller, as Kafka's controller answers."""

from __future__ import annotations

from functools import partial
from typing import Any
from uuid import UUID

import pytest
import trio
import trio.testing

from ottla.server.metadata import keys
from ottla.server.metadata.config_changes import ConfigChange, ConfigOperation
from ottla.server.metadata.controller import MAX_PARTITIONS_PER_REQUEST, SHUTDOWN_SECONDS, Controller
from ottla.server.metadata.errors import (
    BrokerIdNotRegisteredError,
    ElectionNotNeededError,
    InvalidConfigError,
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    InvalidRequestError,
    InvalidTopicError,
    InvalidUpdateVersionError,
    MetadataError,
    PolicyViolationError,
    StoreUnavailableError,
    TopicAlreadyExistsError,
    TopicDeletionDisabledError,
    UnknownTopicError,
    UnknownTopicIdError,
)
from ottla.server.metadata.feature_changes import FeatureUpdate, UpgradeType
from ottla.server.metadata.image import (
    BrokerImage,
    ConfigResource,
    MetadataImage,
    PartitionState,
    ResourceType,
    TopicImage,
)
from ottla.server.metadata.memory import MemoryMetadataStore
from ottla.server.metadata.partition_changes import elect_preferred, with_isr, with_leader
from ottla.server.metadata.store import Delete, Put
from ottla.server.metadata.topic_changes import NewPartitions, NewTopic
from ottla.server.settings.config import BrokerConfig

SET, DELETE = ConfigOperation.SET, ConfigOperation.DELETE
MOST_PARTITIONS = (1 << 31) - 1
APPEND, SUBTRACT = ConfigOperation.APPEND, ConfigOperation.SUBTRACT


def topic_resource(name: str) -> ConfigResource:
    return ConfigResource(ResourceType.TOPIC, name)


class TestCreateTopics:
    async def test_a_topic_is_known_by_name_and_id_once_it_is_answered(self, controller: Controller) -> None:
        created = await controller.create_topic(NewTopic("t", 3, 1, configs={"retention.ms": "5"}))
        image = controller.image
        assert image.topic("t") is image.topic_by_id(created.topic_id)
        topic = image.topics["t"]
        assert [state.leader for state in topic.partitions] == [1, 1, 1]
        assert topic.configs == {"retention.ms": "5"}

    async def test_subscribers_have_applied_it_before_it_is_shown_or_answered(
        self, controller: Controller, recorder: Any
    ) -> None:
        created = await controller.create_topic(NewTopic("t", 2, 1))
        delta = recorder.deltas[-1]
        assert [topic.topic_id for topic in delta.created_topics] == [created.topic_id]
        assert [(it.partition, it.before) for it in delta.changed_partitions] == [(0, None), (1, None)]
        assert recorder.shown[-1] < delta.after.revision == controller.image.revision

    async def test_a_change_that_is_planned_again_is_charged_once(
        self, store: MemoryMetadataStore, controller: Controller, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        charged: list[tuple[str, int]] = []
        commit, conflicts = store.commit, [True]

        async def commit_later(*arguments: Any) -> int | None:
            return None if conflicts and conflicts.pop() else await commit(*arguments)

        monkeypatch.setattr(store, "commit", commit_later)
        await controller.create_topic(NewTopic("t", 3, 1), take_quota=lambda *taken: charged.append(taken))
        assert charged == [("t", 3)]

    async def test_the_brokers_defaults_stand_in_for_minus_one(
        self, store: MemoryMetadataStore, nursery: trio.Nursery
    ) -> None:
        controller = Controller(store, BrokerConfig({"num.partitions": "7"}), node_id=1)
        await nursery.start(controller.run)
        await controller.register_broker(BrokerImage(1, ()))
        assert len((await controller.create_topic(NewTopic("t"))).partitions) == 7
        nursery.cancel_scope.cancel()

    async def test_one_wrong_topic_does_not_touch_the_others(self, controller: Controller) -> None:
        results = await controller.create_topics([NewTopic("bad name", 1, 1), NewTopic("good", 1, 1)])
        assert isinstance(results["bad name"], InvalidTopicError)
        assert isinstance(results["good"], TopicImage)
        assert [*controller.image.topics] == ["good"]

    @pytest.mark.parametrize(
        ("topic", "error", "words"),
        [
            (NewTopic("", 1, 1), InvalidTopicError, "the empty string is not allowed"),
            (NewTopic(".", 1, 1), InvalidTopicError, "'.' is not allowed"),
            (NewTopic("a" * 250, 1, 1), InvalidTopicError, "longer than the max allowed length 249"),
            (NewTopic("a/b", 1, 1), InvalidTopicError, "other than ASCII alphanumerics"),
            (NewTopic("a\n", 1, 1), InvalidTopicError, "other than ASCII alphanumerics"),
            (NewTopic("exists", 1, 1), TopicAlreadyExistsError, "Topic 'exists' already exists."),
            (NewTopic("dotted_name", 1, 1), InvalidTopicError, "collides with existing topic: dotted.name"),
            (NewTopic("__cluster_metadata", 1, 1), InvalidRequestError, "prohibited"),
            (NewTopic("t", 0, 1), InvalidPartitionsError, "invalid non-positive value"),
            (NewTopic("t", 1, 0), InvalidReplicationFactorError, "must be larger than 0, or -1"),
            (NewTopic("t", 1, 2), InvalidReplicationFactorError, "only 1 broker\\(s\\) are registered"),
            (NewTopic("t", 1, -1, {0: [1]}), InvalidRequestError, "numPartitions was not set to -1"),
            (NewTopic("t", -1, 1, {0: [1]}), InvalidRequestError, "replication factor was not set to -1"),
            (NewTopic("t", assignments={1: [1]}), InvalidReplicaAssignmentError, "consecutive 0-based"),
            (NewTopic("t", assignments={0: []}), InvalidReplicaAssignmentError, "empty replica list"),
            (NewTopic("t", assignments={0: [9]}), InvalidReplicaAssignmentError, "no such broker"),
            (NewTopic("t", assignments={0: [1, 1]}), InvalidReplicaAssignmentError, "more than once"),
            (NewTopic("t", 1, 1, configs={"retention.ms": "x"}), InvalidConfigError, "Not a number of type LONG"),
            (NewTopic("t", 1, 1, configs={"nope": "1"}), InvalidConfigError, "Unknown topic config name: nope"),
            (NewTopic("t", 1, 1, configs={"retention.ms": None}), InvalidConfigError, "Null value not supported"),
        ],
    )
    async def test_what_cannot_be_created_says_why(
        self, controller: Controller, topic: NewTopic, error: type[MetadataError], words: str
    ) -> None:
        await controller.create_topics([NewTopic("exists", 1, 1), NewTopic("dotted.name", 1, 1)])
        before = controller.image
        with pytest.raises(error, match=words):
            await controller.create_topic(topic)
        assert controller.image is before

    async def test_names_that_collide_within_one_request(self, controller: Controller) -> None:
        results = await controller.create_topics([NewTopic("a.b", 1, 1), NewTopic("a_b", 1, 1)])
        assert isinstance(results["a.b"], TopicImage)
        assert isinstance(results["a_b"], InvalidTopicError)

    async def test_a_deleted_name_no_longer_collides(self, controller: Controller) -> None:
        created = await controller.create_topic(NewTopic("a.b", 1, 1))
        await controller.delete_topics([created.topic_id])
        assert (await controller.create_topic(NewTopic("a_b", 1, 1))).name == "a_b"

    async def test_validate_only_creates_nothing(self, controller: Controller) -> None:
        results = await controller.create_topics([NewTopic("t", 4, 1)], validate_only=True)
        result = results["t"]
        assert isinstance(result, TopicImage)
        assert len(result.partitions) == 4
        assert controller.image.topic("t") is None

    async def test_too_many_partitions_at_once_are_refused(self, controller: Controller) -> None:
        half = MAX_PARTITIONS_PER_REQUEST // 2
        with pytest.raises(PolicyViolationError):
            await controller.create_topics([NewTopic("a", half, 1), NewTopic("b", half + 1, 1)])
        await controller.create_topic(NewTopic("a", MAX_PARTITIONS_PER_REQUEST, 1))
        assert len(controller.image.topics["a"].partitions) == MAX_PARTITIONS_PER_REQUEST

    @pytest.mark.parametrize("validate_only", [False, True])
    async def test_more_partitions_than_there_is_memory_for_are_refused_before_they_are_placed(
        self, controller: Controller, monkeypatch: pytest.MonkeyPatch, validate_only: bool
    ) -> None:
        await controller.create_topic(NewTopic("t", 1, 1))
        monkeypatch.setattr("ottla.server.metadata.topic_changes.place_replicas", None)
        words = "Excessively large number of partitions per request."
        for asked in ([NewTopic("a", MOST_PARTITIONS, 1)], [NewTopic(f"a{n}", 1, 1) for n in range(10_001)]):
            with pytest.raises(PolicyViolationError, match=words):
                await controller.create_topics(asked, validate_only=validate_only)
        with pytest.raises(PolicyViolationError, match=words):
            await controller.create_partitions([NewPartitions("t", MOST_PARTITIONS)], validate_only=validate_only)

    async def test_what_is_no_number_of_partitions_does_not_count(self, controller: Controller) -> None:
        results = await controller.create_topics([NewTopic("a", 0, 1), NewTopic("b", MAX_PARTITIONS_PER_REQUEST, 1)])
        assert isinstance(results["a"], InvalidPartitionsError)
        assert isinstance(results["b"], TopicImage)

    async def test_of_many_that_create_the_same_topic_one_wins(
        self, store: MemoryMetadataStore, controller: Controller, nursery: trio.Nursery
    ) -> None:
        other = Controller(store, BrokerConfig(), node_id=2)
        await nursery.start(other.run)
        results = []

        async def create(by: Controller) -> None:
            results.append((await by.create_topics([NewTopic("t", 1, 1)]))["t"])

        async with trio.open_nursery() as creators:
            for by in (controller, other, controller, other):
                creators.start_soon(create, by)
        assert len([it for it in results if isinstance(it, TopicImage)]) == 1
        assert len([it for it in results if isinstance(it, TopicAlreadyExistsError)]) == 3

    async def test_internal_topics_have_their_own_configs(self, controller: Controller) -> None:
        offsets = await controller.ensure_topic("__consumer_offsets")
        assert len(offsets.partitions) == 50
        assert offsets.is_internal
        assert offsets.configs["cleanup.policy"] == "compact"
        assert offsets.partitions[0].replicas == (1,)
        transactions = await controller.ensure_topic("__transaction_state")
        assert transactions.configs["min.insync.replicas"] == "1"
        again = await controller.ensure_topic("__consumer_offsets")
        assert again.topic_id == offsets.topic_id


class TestDeleteTopics:
    async def test_a_recreated_topic_is_another_one(self, controller: Controller, recorder: Any) -> None:
        first = await controller.create_topic(NewTopic("t", 1, 1))
        assert await controller.delete_topics([first.topic_id]) == {first.topic_id: None}
        assert controller.image.topic("t") is None
        assert [topic.topic_id for topic in recorder.deltas[-1].deleted_topics] == [first.topic_id]
        second = await controller.create_topic(NewTopic("t", 1, 1))
        assert second.topic_id != first.topic_id
        assert controller.image.topic_by_id(first.topic_id) is None

    async def test_an_unknown_id_is_answered_for_itself(self, controller: Controller) -> None:
        known = await controller.create_topic(NewTopic("t", 1, 1))
        unknown = UUID(int=7)
        results = await controller.delete_topics([unknown, known.topic_id])
        assert isinstance(results[unknown], UnknownTopicIdError)
        assert results[known.topic_id] is None

    async def test_partition_states_go_with_the_topic(self, store: MemoryMetadataStore, controller: Controller) -> None:
        created = await controller.create_topic(NewTopic("t", 1, 1))
        await controller.change_partition("t", 0, lambda state: with_leader(state, -1))
        assert len((await store.list("/partitions/")).entries) == 1
        await controller.delete_topics([created.topic_id])
        assert (await store.list("/partitions/")).entries == ()

    async def test_deletion_can_be_forbidden(self, store: MemoryMetadataStore) -> None:
        controller = Controller(store, BrokerConfig({"delete.topic.enable": "false"}), node_id=1)
        with pytest.raises(TopicDeletionDisabledError):
            await controller.delete_topics([UUID(int=7)])


class TestPartitions:
    async def test_added_partitions_leave_the_old_ones_as_they_are(self, controller: Controller, recorder: Any) -> None:
        await controller.create_topic(NewTopic("t", 2, 1))
        moved = await controller.change_partition("t", 1, lambda state: with_leader(state, 1))
        assert await controller.create_partitions([NewPartitions("t", 4)]) == {"t": None}
        assert controller.image.partition("t", 1) == moved
        assert len(controller.image.topics["t"].partitions) == 4
        assert [it.partition for it in recorder.deltas[-1].changed_partitions] == [2, 3]

    @pytest.mark.parametrize(
        ("asked", "error", "words"),
        [
            (NewPartitions("absent", 3), UnknownTopicError, ""),
            (NewPartitions("t", 2), InvalidPartitionsError, "already has 2 partition"),
            (NewPartitions("t", 1), InvalidPartitionsError, "would not be an increase"),
            (NewPartitions("t", 4, [[1]]), InvalidReplicaAssignmentError, "only 1 assignment"),
            (NewPartitions("t", 3, [[5]]), InvalidReplicaAssignmentError, "no such broker"),
        ],
    )
    async def test_what_cannot_be_added_says_why(
        self, controller: Controller, asked: NewPartitions, error: type[MetadataError], words: str
    ) -> None:
        await controller.create_topic(NewTopic("t", 2, 1))
        result = (await controller.create_partitions([asked]))[asked.name]
        assert isinstance(result, error)
        assert words in str(result)
        assert len(controller.image.topics["t"].partitions) == 2

    async def test_a_state_change_raises_its_epochs_and_survives_a_restart(
        self, store: MemoryMetadataStore, controller: Controller, nursery: trio.Nursery
    ) -> None:
        await controller.create_topic(NewTopic("t", 1, 1))
        await controller.change_partition("t", 0, lambda state: with_leader(state, -1))
        state = await controller.change_partition("t", 0, lambda state: with_isr(state, ()))
        assert (state.leader, state.leader_epoch, state.partition_epoch, state.isr) == (-1, 1, 2, ())
        restarted = Controller(store, BrokerConfig(), node_id=1)
        await nursery.start(restarted.run)
        assert restarted.image.partition("t", 0) == state

    async def test_the_preferred_replica_that_leads_needs_no_election(self, controller: Controller) -> None:
        await controller.create_topic(NewTopic("t", 1, 1))
        with pytest.raises(ElectionNotNeededError):
            await controller.change_partition("t", 0, lambda state: elect_preferred(state, {1}))
        assert controller.image.partition("t", 0) == PartitionState.initial((1,))


class TestConfigs:
    async def test_set_and_delete(self, controller: Controller, recorder: Any) -> None:
        await controller.create_topic(NewTopic("t", 1, 1))
        resource = topic_resource("t")
        assert await controller.alter_configs({resource: [ConfigChange("retention.ms", SET, "9")]}) == {resource: None}
        assert controller.image.topics["t"].configs == {"retention.ms": "9"}
        assert [topic.name for topic in recorder.deltas[-1].reconfigured_topics] == ["t"]
        await controller.alter_configs({resource: [ConfigChange("retention.ms", DELETE)]})
        assert controller.image.topics["t"].configs == {}

    async def test_append_and_subtract_edit_a_list_beginning_with_its_default(self, controller: Controller) -> None:
        await controller.create_topic(NewTopic("t", 1, 1))
        resource = topic_resource("t")
        await controller.alter_configs({resource: [ConfigChange("cleanup.policy", APPEND, "compact")]})
        assert controller.image.topics["t"].configs == {"cleanup.policy": "delete,compact"}
        await controller.alter_configs({resource: [ConfigChange("cleanup.policy", APPEND, "compact")]})
        await controller.alter_configs({resource: [ConfigChange("cleanup.policy", SUBTRACT, "delete")]})
        assert controller.image.topics["t"].configs == {"cleanup.policy": "compact"}

    async def test_replace_drops_what_is_not_named(self, controller: Controller) -> None:
        await controller.create_topic(NewTopic("t", 1, 1, configs={"retention.ms": "5", "segment.ms": "6"}))
        change = ConfigChange("segment.ms", SET, "7")
        await controller.alter_configs({topic_resource("t"): [change]}, replace=True)
        assert controller.image.topics["t"].configs == {"segment.ms": "7"}

    async def test_validate_only_changes_nothing(self, controller: Controller) -> None:
        await controller.create_topic(NewTopic("t", 1, 1))
        asked = {topic_resource("t"): [ConfigChange("retention.ms", SET, "9")]}
        assert await controller.alter_configs(asked, validate_only=True) == {topic_resource("t"): None}
        assert controller.image.topics["t"].configs == {}

    @pytest.mark.parametrize(
        ("resource", "changes", "error", "words"),
        [
            (topic_resource("absent"), [], UnknownTopicError, "does not exist"),
            (topic_resource("t"), [("retention.ms", SET, "x")], InvalidConfigError, "Not a number of type LONG"),
            (topic_resource("t"), [("retention.m", SET, "1")], InvalidConfigError, "Unknown topic config name"),
            (topic_resource("t"), [("internal.segment.bytes", SET, "1")], InvalidConfigError, "Unknown topic config"),
            (topic_resource("t"), [("retention.ms", APPEND, "1")], InvalidConfigError, "its type is not LIST"),
            (topic_resource("t"), [("retention.ms", SET, None)], InvalidRequestError, "Null value not supported"),
            (
                topic_resource("t"),
                [("retention.ms", SET, "1"), ("retention.ms", DELETE, None)],
                InvalidRequestError,
                "duplicate config keys",
            ),
            (
                topic_resource("t"),
                [("min.compaction.lag.ms", SET, "9"), ("max.compaction.lag.ms", SET, "8")],
                InvalidConfigError,
                "conflict topic config",
            ),
            (ConfigResource(ResourceType.BROKER, "2"), [], InvalidRequestError, "Unexpected broker id, expected 1"),
            (ConfigResource(ResourceType.BROKER, "x"), [], InvalidRequestError, "must be an integer"),
            (
                ConfigResource(ResourceType.BROKER, "1"),
                [("num.partitions", SET, "3")],
                InvalidRequestError,
                "Cannot update these configs dynamically: \\[num.partitions\\]",
            ),
            (
                ConfigResource(ResourceType.BROKER, ""),
                [("listeners", SET, "PLAINTEXT://:1")],
                InvalidRequestError,
                "broker id must be specified",
            ),
            (
                ConfigResource(ResourceType.GROUP, "g"),
                [("consumer.session.timeout.ms", SET, "1")],
                InvalidConfigError,
                "greater than or equal to group.consumer.min.session.timeout.ms",
            ),
            (ConfigResource(ResourceType.GROUP, ""), [], InvalidRequestError, "Default group resources"),
            (
                ConfigResource(ResourceType.CLIENT_METRICS, "m"),
                [("match", SET, "colour=red")],
                InvalidConfigError,
                "Illegal client matching pattern",
            ),
        ],
    )
    async def test_what_cannot_be_set_says_why(
        self,
        controller: Controller,
        resource: ConfigResource,
        changes: list[tuple[str, ConfigOperation, str | None]],
        error: type[MetadataError],
        words: str,
    ) -> None:
        await controller.create_topic(NewTopic("t", 1, 1))
        result = (await controller.alter_configs({resource: [ConfigChange(*change) for change in changes]}))[resource]
        with pytest.raises(error, match=words):
            raise result or AssertionError("it was accepted")

    async def test_a_dynamic_broker_default_shows_through_to_topics_and_this_broker_goes_first(
        self, controller: Controller, config: BrokerConfig
    ) -> None:
        retention = "log.retention.ms"
        every, own = ConfigResource(ResourceType.BROKER, ""), ConfigResource(ResourceType.BROKER, "1")
        assert config.topic_config({}).retention_ms == 604_800_000
        await controller.alter_configs({every: [ConfigChange(retention, SET, "1000")]})
        assert config.topic_config({}).retention_ms == 1000
        await controller.alter_configs({own: [ConfigChange(retention, SET, "2000")]})
        assert config.topic_config({}).retention_ms == 2000
        assert config.topic_config({"retention.ms": "3000"}).retention_ms == 3000
        await controller.alter_configs({own: [ConfigChange(retention, DELETE)]})
        assert config.topic_config({}).retention_ms == 1000


class TestStarts:
    async def start(self, store: MemoryMetadataStore, node_id: int = 1) -> MetadataImage:
        """The image of a controller that starts, registers its broker and ends."""
        controller = Controller(store, BrokerConfig(), node_id=node_id)
        async with trio.open_nursery() as nursery:
            await nursery.start(controller.run)
            await controller.register_broker(BrokerImage(node_id, ()))
            image = controller.image
            nursery.cancel_scope.cancel()
        return image

    async def test_each_start_begins_new_epochs_of_what_the_broker_leads(
        self, store: MemoryMetadataStore, controller: Controller
    ) -> None:
        await self.start(store, node_id=2)
        await controller.create_topic(NewTopic("t", assignments={0: [1, 2], 1: [2, 1], 2: [1, 2]}))
        await controller.change_partition("t", 2, partial(with_leader, leader=2))
        before = controller.image.topics["t"].partitions

        after = (await self.start(store)).topics["t"].partitions
        assert [new.leader_epoch - old.leader_epoch for new, old in zip(after, before, strict=True)] == [1, 0, 0]
        assert after[0].partition_epoch > before[0].partition_epoch
        await trio.testing.wait_all_tasks_blocked()
        assert controller.image.topics["t"].partitions == after  # who runs is told

        again = (await self.start(store, node_id=2)).topics["t"].partitions
        assert [new.leader_epoch - old.leader_epoch for new, old in zip(again, after, strict=True)] == [0, 1, 1]

    async def test_an_epoch_never_goes_back_when_a_partition_moves(
        self, store: MemoryMetadataStore, controller: Controller
    ) -> None:
        """To a broker that has started less often."""
        for _ in range(5):
            await self.start(store)
        await self.start(store, node_id=2)
        await trio.testing.wait_all_tasks_blocked()
        await controller.create_topic(NewTopic("t", assignments={0: [1, 2]}))
        epochs = [controller.image.topics["t"].partitions[0].leader_epoch]
        for node_id in (2, 1, 2):
            await controller.change_partition("t", 0, partial(with_leader, leader=node_id))
            epochs.append(controller.image.topics["t"].partitions[0].leader_epoch)
            await self.start(store, node_id)
            await trio.testing.wait_all_tasks_blocked()
            epochs.append(controller.image.topics["t"].partitions[0].leader_epoch)
        assert epochs == [*range(epochs[0], epochs[0] + 7)]

    async def test_the_first_start_of_a_broker_of_an_older_release_is_no_first_start(
        self, store: MemoryMetadataStore
    ) -> None:
        await self.start(store)
        await store.commit([], [Delete(keys.starts(1))])
        assert (await self.start(store)).starts == {1: 1}

    async def test_the_first_start_of_a_broker_that_joins_is_its_first(self, store: MemoryMetadataStore) -> None:
        await self.start(store)
        await self.start(store)
        assert (await self.start(store, node_id=2)).starts == {1: 1, 2: 0}

    async def test_a_start_that_cannot_be_counted_leads_nothing(self, store: MemoryMetadataStore) -> None:
        class Broken(MemoryMetadataStore):
            async def commit(self, compares: Any, operations: Any) -> int | None:
                if any(isinstance(put, Put) and put.key == keys.starts(1) for put in operations):
                    raise StoreUnavailableError
                return await super().commit(compares, operations)

        controller = Controller(Broken(), BrokerConfig(), node_id=1)
        with pytest.raises(StoreUnavailableError):
            await controller.run()
        assert controller.image.revision == 0


class TestShutdown:
    @pytest.mark.parametrize(
        "change",
        [
            lambda controller: controller.create_topic(NewTopic("t", 1, 1)),
            lambda controller: controller.allocate_producer_ids(),
            lambda controller: controller.catch_up(),
        ],
    )
    @pytest.mark.parametrize("begins_before", [True, False])
    async def test_who_is_overtaken_again_and_again_gives_up_soon(
        self,
        store: MemoryMetadataStore,
        controller: Controller,
        monkeypatch: pytest.MonkeyPatch,
        autojump_clock: trio.testing.MockClock,
        change: Any,
        *,
        begins_before: bool,
    ) -> None:
        async def lost(*arguments: Any) -> None:
            await trio.sleep(4)

        for method in ("commit", "get", "list"):
            monkeypatch.setattr(store, method, lost)
        asked_at = trio.current_time() + (2 if begins_before else 0)

        async def shut_down() -> None:
            await trio.sleep_until(asked_at)
            controller.begin_shutdown()

        async with trio.open_nursery() as nursery:
            if begins_before:
                nursery.start_soon(shut_down)
            else:
                await shut_down()
            with pytest.raises(StoreUnavailableError, match="shutting down"):
                await change(controller)
        assert trio.current_time() == asked_at + SHUTDOWN_SECONDS

    async def test_what_it_answers_is_carried_out(self, controller: Controller, autojump_clock: object) -> None:
        controller.begin_shutdown()
        assert (await controller.create_topic(NewTopic("t", 1, 1))).name == "t"


class TestCluster:
    async def test_one_that_is_behind_catches_up(self, store: MemoryMetadataStore, nursery: trio.Nursery) -> None:
        """Before that it would say of a broker that came and went meanwhile that there is none."""
        behind = Controller(store, BrokerConfig(), node_id=1)
        goes_on = trio.Event()
        behind.subscribe(lambda delta: goes_on.wait())
        goes_on.set()
        await nursery.start(behind.run)
        goes_on = trio.Event()
        await store.commit([], [Put(keys.broker(2), keys.encode_broker(BrokerImage(2, (), fenced=True)))])
        async with trio.open_nursery() as asking:
            asking.start_soon(behind.catch_up)
            await trio.testing.wait_all_tasks_blocked()
            assert 2 not in behind.image.brokers
            goes_on.set()
        await behind.unregister_broker(2)
        assert await store.get(keys.broker(2)) is None
        with pytest.raises(BrokerIdNotRegisteredError):
            await behind.unregister_broker(2)

    async def test_the_cluster_id_is_22_characters_and_stays(
        self, store: MemoryMetadataStore, controller: Controller, nursery: trio.Nursery
    ) -> None:
        cluster_id = controller.image.cluster_id
        assert len(cluster_id) == 22
        restarted = Controller(store, BrokerConfig(), node_id=1)
        await nursery.start(restarted.run)
        assert restarted.image.cluster_id == cluster_id
        assert restarted.image.topics == controller.image.topics

    async def test_features_go_up_freely_and_down_only_when_told(self, controller: Controller) -> None:
        down = FeatureUpdate("transaction.version", 1)
        with pytest.raises(InvalidUpdateVersionError, match="downgrade"):
            await controller.update_features([down])
        await controller.update_features([FeatureUpdate("transaction.version", 1, UpgradeType.SAFE_DOWNGRADE)])
        assert controller.image.features["transaction.version"] == 1
        await controller.update_features([FeatureUpdate("transaction.version", 2)])
        assert controller.image.features["transaction.version"] == 2

    @pytest.mark.parametrize(("name", "level"), [("no.such.feature", 1), ("group.version", 2), ("group.version", 99)])
    async def test_unknown_features_and_levels_are_refused(self, controller: Controller, name: str, level: int) -> None:
        with pytest.raises(InvalidUpdateVersionError):
            await controller.update_features([FeatureUpdate(name, level)])

    async def test_producer_ids_are_given_out_once(self, controller: Controller) -> None:
        blocks: list[range] = []

        async def allocate() -> None:
            blocks.append(await controller.allocate_producer_ids(10))

        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(allocate)
        assert sorted(producer_id for block in blocks for producer_id in block) == list(range(50))

    async def test_quotas_are_set_changed_and_removed(self, controller: Controller) -> None:
        entity = (("client-id", "c"), ("user", None))
        await controller.alter_client_quotas({entity: {"producer_byte_rate": 100.0, "request_percentage": 5.5}})
        await controller.alter_client_quotas({entity: {"producer_byte_rate": None}})
        assert controller.image.quotas == {entity: {"request_percentage": 5.5}}
        await controller.alter_client_quotas({entity: {"request_percentage": None}})
        assert controller.image.quotas == {}

    @pytest.mark.parametrize(
        ("entity", "key", "value"),
        [
            ((), "producer_byte_rate", 1.0),
            ((("tribe", "x"),), "producer_byte_rate", 1.0),
            ((("user", "x"),), "connection_creation_rate", 1.0),
            ((("user", "x"),), "producer_byte_rate", 0.0),
            ((("user", "x"),), "producer_byte_rate", 1.5),
            ((("user", "x"),), "producer_byte_rate", float("nan")),
            ((("ip", "not an address"),), "connection_creation_rate", 1.0),
            ((("ip", "1.2.3.4"), ("user", "x")), "connection_creation_rate", 1.0),
        ],
    )
    async def test_wrong_quotas_are_refused(
        self, controller: Controller, entity: tuple[tuple[str, str | None], ...], key: str, value: float
    ) -> None:
        results = await controller.alter_client_quotas({entity: {key: value}})
        assert isinstance(results[entity], InvalidRequestError)
        assert controller.image.quotas == {}
