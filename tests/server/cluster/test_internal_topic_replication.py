"""The coordinators' topics get their replicas when there are brokers for them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from uuid import uuid4

import pytest

from ottla.kproto.errors import ErrorCode
from ottla.metadata.image import BrokerImage, MetadataImage, PartitionState, TopicImage
from ottla.metadata.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from ottla.server.cluster.internal_topic_replication import plan_growth, plan_min_in_sync
from ottla.settings.config import BrokerConfig
from tests.clusters import RunCluster
from tests.server.cluster.producers import GROUP, Router, committed_offset
from tests.server.cluster.test_everywhere import commit

REPLICATED = {
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
}
CONFIG = BrokerConfig(REPLICATED)


def image_of(
    *states: PartitionState, racks: str = "aaa", name: str = CONSUMER_OFFSETS, **configs: str
) -> MetadataImage:
    """A topic on brokers 1, 2, … in these racks; one in rack `-` is fenced."""
    settings = {setting.replace("_", "."): value for setting, value in configs.items()}
    topic = TopicImage(name, uuid4(), states, configs=settings)
    empty = MetadataImage()
    return replace(
        empty,
        brokers={
            node_id: BrokerImage(node_id, (), rack=rack, fenced=rack == "-") for node_id, rack in enumerate(racks, 1)
        },
        topics=empty.topics.set(name, topic),
        topics_by_id=empty.topics_by_id.set(topic.topic_id, topic),
    )


def on(*replicas: int) -> PartitionState:
    return PartitionState(leader=replicas[0], replicas=replicas, isr=replicas)


async def grown(image: MetadataImage) -> list[tuple[int, ...]]:
    """The replicas of each partition, when it has all that were planned."""
    changes = await plan_growth(image, CONFIG)
    (topic,) = image.topics.values()
    found = []
    for index, state in enumerate(topic.partitions):
        update = changes.get((topic.topic_id, index))
        after = state if update is None else update(state)
        assert set(state.replicas) <= set(after.replicas)
        assert after.isr == state.isr
        assert after.leader == state.leader
        found.append(after.replicas)
    return found


async def test_replicas_and_leaders_are_spread_over_the_brokers() -> None:
    found = await grown(image_of(*[on(1)] * 12, racks="aaaa"))
    assert {len(set(replicas)) for replicas in found} == {3}
    assert Counter(replicas[0] for replicas in found) == {1: 3, 2: 3, 3: 3, 4: 3}
    assert Counter(broker for replicas in found for broker in replicas) == {1: 12, 2: 8, 3: 8, 4: 8}


async def test_replicas_go_to_other_racks_first() -> None:
    assert [set(replicas) for replicas in await grown(image_of(*[on(1)] * 4, racks="aabc"))] == [{1, 3, 4}] * 4


@pytest.mark.parametrize("racks", ["a", "a-", "a--"])
async def test_there_must_be_brokers_that_live(racks: str) -> None:
    assert await plan_growth(image_of(on(1), racks=racks), CONFIG) == {}


async def test_two_brokers_are_better_than_one() -> None:
    assert [set(replicas) for replicas in await grown(image_of(on(1), racks="aa-"))] == [{1, 2}]


async def test_what_moves_or_has_enough_or_belongs_to_users_is_left_alone() -> None:
    moving = PartitionState(leader=1, replicas=(2, 1), isr=(1,), adding_replicas=(2,), removing_replicas=(1,))
    assert await plan_growth(image_of(moving, on(1, 2, 3), on(1, 2, 3, 4), racks="aaaa"), CONFIG) == {}
    assert await plan_growth(image_of(on(1), name="orders"), CONFIG) == {}


@pytest.mark.parametrize(
    ("isr", "has", "wanted"),
    [((1, 2, 3), "1", ["2"]), ((1, 2), "1", []), ((1, 2, 3), "2", []), ((1, 2, 3), "3", [])],
)
async def test_more_must_be_in_sync_when_all_are(isr: tuple[int, ...], has: str, wanted: list[str]) -> None:
    states = (on(1, 2, 3), PartitionState(leader=1, replicas=(1, 2, 3), isr=isr))
    image = image_of(*states, name=TRANSACTION_STATE, min_insync_replicas=has)
    assert list(plan_min_in_sync(image, CONFIG).values()) == wanted


async def test_offsets_of_the_first_node_outlive_it_once_there_are_three(run_cluster: RunCluster) -> None:
    async with run_cluster(1, REPLICATED) as cluster:
        router = Router(cluster)
        await cluster[1].create_topic("t")
        await cluster[1].broker.controller.ensure_topic(TRANSACTION_STATE)
        committed = await router.call(await router.coordinator("g", GROUP), commit("g", "t", 7), 8)
        assert committed.topics[0].partitions[0].error_code == ErrorCode.NONE
        for node_id in (2, 3):
            await cluster.start(node_id)

        def has_grown(image: MetadataImage) -> bool:
            topics = [image.topics.get(name) for name in (CONSUMER_OFFSETS, TRANSACTION_STATE)]
            return all(topic and all(set(it.isr) == {1, 2, 3} for it in topic.partitions) for topic in topics)

        def needs_two(image: MetadataImage) -> bool:
            return image.topics[TRANSACTION_STATE].configs["min.insync.replicas"] == "2"

        await cluster.until(has_grown)
        await cluster.until(needs_two)
        await cluster.until_connected()
        await cluster.kill(1)
        await cluster.until(lambda image: all(it.leader in (2, 3) for it in image.topics[CONSUMER_OFFSETS].partitions))
        assert await committed_offset(router, "g", "t") == 7
