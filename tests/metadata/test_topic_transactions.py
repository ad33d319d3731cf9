"""Topics and their partitions through the controller, as Kafka's controller answers."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
import trio
import trio.testing

from ottla.metadata.changes.partition_changes import elect_preferred, with_isr, with_leader
from ottla.metadata.changes.topic_changes import NewPartitions, NewTopic
from ottla.metadata.changes.topic_transactions import MAX_PARTITIONS_PER_REQUEST
from ottla.metadata.controller import Controller
from ottla.metadata.errors import (
    ElectionNotNeededError,
    InvalidConfigError,
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    InvalidRequestError,
    InvalidTopicError,
    TopicAlreadyExistsError,
    TopicDeletionDisabledError,
    UnknownTopicError,
    UnknownTopicIdError,
)
from ottla.metadata.image import BrokerImage, PartitionState, TopicImage
from ottla.metastore.errors import MetadataError, PolicyViolationError
from ottla.metastore.memory import MemoryMetadataStore
from ottla.settings.config import BrokerConfig
from tests.partitions import change_partition

MOST_PARTITIONS = (1 << 31) - 1


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
        monkeypatch.setattr("ottla.metadata.changes.topic_changes.place_replicas", None)
        words = "Excessively large number of partitions per request."
        for asked in ([NewTopic("a", MOST_PARTITIONS, 1)], [NewTopic(f"a{n}", 1, 1) for n in range(10_001)]):
            with pytest.raises(PolicyViolationError, match=words):
                await controller.create_topics(asked, validate_only=validate_only)
        words = "Excessively large number of additional partitions per request."
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
        await change_partition(controller, "t", 0, lambda state: with_leader(state, -1))
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
        moved = await change_partition(controller, "t", 1, lambda state: with_leader(state, 1))
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
        await change_partition(controller, "t", 0, lambda state: with_leader(state, -1))
        state = await change_partition(controller, "t", 0, lambda state: with_isr(state, ()))
        assert (state.leader, state.leader_epoch, state.partition_epoch, state.isr) == (-1, 1, 2, ())
        restarted = Controller(store, BrokerConfig(), node_id=1)
        await nursery.start(restarted.run)
        assert restarted.image.partition("t", 0) == state

    async def test_the_preferred_replica_that_leads_needs_no_election(self, controller: Controller) -> None:
        await controller.create_topic(NewTopic("t", 1, 1))
        with pytest.raises(ElectionNotNeededError):
            await change_partition(controller, "t", 0, lambda state: elect_preferred(state, {1}))
        assert controller.image.partition("t", 0) == PartitionState.initial((1,))
