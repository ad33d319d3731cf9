"""A new cluster, and what each start of a node changes."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import trio
import trio.testing

from ottla.metadata import keys
from ottla.metadata.changes.partition_changes import with_leader
from ottla.metadata.changes.topic_changes import NewTopic
from ottla.metadata.controller import Controller
from ottla.metadata.image import BrokerImage, MetadataImage
from ottla.metastore.errors import StoreUnavailableError
from ottla.metastore.memory import MemoryMetadataStore
from ottla.metastore.store import Delete, Put
from ottla.settings.config import BrokerConfig
from tests.partitions import change_partition


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
        await change_partition(controller, "t", 2, partial(with_leader, leader=2))
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
            await change_partition(controller, "t", 0, partial(with_leader, leader=node_id))
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


async def test_the_cluster_id_is_22_characters_and_stays(
    store: MemoryMetadataStore, controller: Controller, nursery: trio.Nursery
) -> None:
    cluster_id = controller.image.cluster_id
    assert len(cluster_id) == 22
    restarted = Controller(store, BrokerConfig(), node_id=1)
    await nursery.start(restarted.run)
    assert restarted.image.cluster_id == cluster_id
    assert restarted.image.topics == controller.image.topics
