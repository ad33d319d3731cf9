"""Images made step by step are those made at once, and deltas name exactly what differs."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from ottla.metadata import keys
from ottla.metadata.changes.partition_changes import with_leader
from ottla.metadata.image import (
    BrokerImage,
    ConfigResource,
    Endpoint,
    MetadataDelta,
    MetadataImage,
    PartitionState,
    ResourceType,
)
from ottla.metadata.image_delta import evolve
from ottla.metadata.loader import MetadataLoader
from ottla.metadata.persistent_map import PersistentMap
from ottla.metastore.memory import MemoryMetadataStore
from ottla.metastore.store import WATCH_BUFFER, Delete, DeletePrefix, KeyValue, Operation, Put

_NAMES = st.sampled_from(["a", "b", "c"])
_IDS = st.sampled_from([UUID(int=number << 16) for number in (1, 2, 3)])


def put_topic(name: str, topic_id: UUID, partitions: int, configs: dict[str, str]) -> list[Operation]:
    return [Put(keys.topic(name), keys.encode_topic(topic_id, [[1]] * partitions, configs))]


def put_state(topic_id: UUID, number: int, epoch: int) -> list[Operation]:
    state = PartitionState(leader=1, replicas=(1,), isr=(1,), leader_epoch=epoch, partition_epoch=epoch)
    return [Put(keys.partition(topic_id, number), keys.encode_partition(state, {1: 1}))]


def put_starts(node_id: int, count: int) -> list[Operation]:
    return [Put(keys.starts(node_id), keys.encode(count))]


def put_topic_at_a_start(name: str, topic_id: UUID, count: int) -> list[Operation]:
    return put_topic(name, topic_id, 4, {}) + put_starts(1, count)


def delete_topic(name: str, topic_id: UUID) -> list[Operation]:
    return [Delete(keys.topic(name)), DeletePrefix(keys.partitions_of(topic_id))]


def put_other(kind: int, value: int) -> list[Operation]:
    resource = ConfigResource(ResourceType.BROKER, "")
    broker = BrokerImage(value, (Endpoint("PLAINTEXT", "h", value),), fenced=value == 2)
    choices: list[list[Operation]] = [
        [Put(keys.configs(resource), keys.encode({"log.retention.ms": str(value)}))],
        [Put(keys.broker(value), keys.encode_broker(broker))],
        [Put(keys.feature("f"), keys.encode(value))],
        [Put(keys.quota((("user", None),)), keys.encode({"producer_byte_rate": float(value)}))],
        [Put(keys.CLUSTER_ID, keys.encode("x"))],
        [Delete(keys.configs(resource))],
        [Delete(keys.broker(value))],
        [Delete(keys.quota((("user", None),)))],
        [Put(keys.PRODUCER_IDS, keys.encode(value))],
    ]
    return choices[kind]


_TRANSACTIONS = st.lists(
    st.one_of(
        st.builds(put_topic, _NAMES, _IDS, st.integers(1, 4), st.dictionaries(st.just("retention.ms"), st.just("1"))),
        st.builds(put_state, _IDS, st.integers(0, 5), st.integers(1, 3)),
        st.builds(delete_topic, _NAMES, _IDS),
        st.builds(put_other, st.integers(0, 8), st.integers(1, 3)),
        st.builds(put_starts, st.integers(1, 2), st.integers(0, 3)),
        st.builds(put_topic_at_a_start, _NAMES, _IDS, st.integers(0, 3)),
    ),
    max_size=25,
)


def content(image: MetadataImage) -> dict[str, Any]:
    fields = {name: getattr(image, name) for name in MetadataImage.__dataclass_fields__}
    return fields | {"topics": dict(image.topics), "topics_by_id": dict(image.topics_by_id)}


def apply_to_partitions(delta: MetadataDelta, held: dict[tuple[UUID, int], PartitionState]) -> None:
    """What the replica manager makes of a delta."""
    for topic in delta.deleted_topics:
        for number in range(len(topic.partitions)):
            del held[topic.topic_id, number]
    for change in delta.changed_partitions:
        assert held.get((change.topic.topic_id, change.partition)) == change.before
        held[change.topic.topic_id, change.partition] = change.after


@given(_TRANSACTIONS)
def test_step_by_step_is_the_same_as_at_once(transactions: list[list[Operation]]) -> None:
    async def follow() -> None:
        store = MemoryMetadataStore()
        image = MetadataImage()
        held: dict[tuple[UUID, int], PartitionState] = {}
        known_ids: set[UUID] = set()
        async with store.watch("", 0) as watch:
            for operations in transactions:
                # A topic's id is never used twice, as the controller's are random.
                if isinstance(operations[0], Put) and operations[0].key.startswith(keys.TOPICS):
                    topic_id, _, _ = keys.decode_topic(operations[0].value)
                    name = operations[0].key.removeprefix(keys.TOPICS)
                    current = image.topic(name)
                    if (current is None or current.topic_id != topic_id) and topic_id in known_ids:
                        continue
                    if current is not None and len(keys.decode_topic(operations[0].value)[1]) < len(current.partitions):
                        continue
                    known_ids.add(topic_id)
                if isinstance(operations[0], Delete) and operations[0].key.startswith(keys.TOPICS):
                    current = image.topic(operations[0].key.removeprefix(keys.TOPICS))
                    if current is None:
                        continue
                    operations = delete_topic(current.name, current.topic_id)
                first = operations[0]
                if isinstance(first, Put) and first.key.startswith(keys.PARTITIONS):
                    # The controller compares the topic's revision, so a state never comes before its partition.
                    topic_id, number = keys.parse_partition(first.key)
                    current = image.topic_by_id(topic_id)
                    if current is None or number >= len(current.partitions):
                        continue
                if isinstance(first, Delete) and await store.get(first.key) is None:
                    continue
                revision = await store.commit([], operations)
                change = await watch.receive()
                assert change.revision == revision
                delta = evolve(image, change.revision, change.puts, change.deletes)
                apply_to_partitions(delta, held)
                image = delta.after
        listing = await store.list("")
        at_once = evolve(MetadataImage(), listing.revision, listing.entries, ()).after
        assert content(image) | {"revision": 0} == content(at_once) | {"revision": 0}
        assert held == {
            (topic.topic_id, number): state
            for topic in at_once.topics.values()
            for number, state in enumerate(topic.partitions)
        }

    trio.run(follow)


def test_a_delta_of_one_topic_leaves_the_others_shared() -> None:
    topics = [f"t{number}" for number in range(300)]
    entries = [
        KeyValue(keys.topic(name), keys.encode_topic(UUID(int=(index + 1) << 16), [[1]], {}), 1, 1)
        for index, name in enumerate(topics)
    ]
    before = evolve(MetadataImage(), 1, entries, ()).after
    grown = keys.encode_topic(UUID(int=1 << 16), [[1], [1]], {})
    delta = evolve(before, 2, [KeyValue(keys.topic("t0"), grown, 1, 2)], ())
    assert [(it.topic.name, it.partition) for it in delta.changed_partitions] == [("t0", 1)]
    assert all(delta.after.topics[name] is before.topics[name] for name in topics[1:])
    assert len(before.topics["t0"].partitions) == 1


class TestPersistentMap:
    @given(st.lists(st.tuples(st.integers(0, 300), st.one_of(st.none(), st.integers()))))
    def test_it_is_a_dictionary_whose_versions_do_not_change(self, steps: list[tuple[int, int | None]]) -> None:
        model: dict[int, int] = {}
        version: PersistentMap[int, int] = PersistentMap(lambda key: key)
        for key, value in steps:
            before, before_model = version, dict(model)
            if value is None:
                version = version.remove(key)
                model.pop(key, None)
            else:
                version = version.set(key, value)
                model[key] = value
            assert dict(version) == model
            assert len(version) == len(model)
            assert dict(before) == before_model
            assert (key in version) == (key in model)


class TestLoader:
    async def test_a_loader_that_fell_behind_lists_again_and_misses_nothing(self, nursery: trio.Nursery) -> None:
        store = MemoryMetadataStore()
        await store.commit([], put_topic("old", UUID(int=1 << 16), 1, {}))
        loader = MetadataLoader(store)
        deltas: list[MetadataDelta] = []
        gate = trio.Event()

        async def subscriber(delta: MetadataDelta) -> None:
            deltas.append(delta)
            if len(deltas) == 2:
                await gate.wait()

        loader.subscribe(subscriber)
        await nursery.start(loader.run)
        await store.commit([], put_topic("first", UUID(int=2 << 16), 1, {}))
        await trio.testing.wait_all_tasks_blocked()
        for number in range(WATCH_BUFFER + 5):
            await store.commit([], [Put("/noise", b"%d" % number)])
        revision = await store.commit([], [Delete(keys.topic("old")), *put_topic("last", UUID(int=3 << 16), 2, {})])
        assert revision is not None
        gate.set()
        await loader.wait_for(revision)
        assert sorted(loader.image.topics) == ["first", "last"]
        created = [topic.name for delta in deltas for topic in delta.created_topics]
        deleted = [topic.name for delta in deltas for topic in delta.deleted_topics]
        assert (created, deleted) == (["old", "first", "last"], ["old"])
        nursery.cancel_scope.cancel()

    async def test_a_change_is_shown_when_every_subscriber_has_applied_it(self, nursery: trio.Nursery) -> None:
        store = MemoryMetadataStore()
        loader = MetadataLoader(store)
        gate = trio.Event()

        async def slow(delta: MetadataDelta) -> None:
            if delta.created_topics:
                await gate.wait()

        loader.subscribe(slow)
        await nursery.start(loader.run)
        revision = await store.commit([], put_topic("t", UUID(int=1 << 16), 1, {}))
        await trio.testing.wait_all_tasks_blocked()
        assert loader.image.topic("t") is None
        gate.set()
        await loader.wait_for(revision or 0)
        assert loader.image.topic("t") is not None
        nursery.cancel_scope.cancel()

    async def test_leader_epochs_come_back_as_they_were(self, nursery: trio.Nursery) -> None:
        store = MemoryMetadataStore()
        topic_id = UUID(int=1 << 16)
        await store.commit([], put_topic("t", topic_id, 2, {}))
        state = with_leader(PartitionState.initial((1,)), -1)
        await store.commit([], [Put(keys.partition(topic_id, 1), keys.encode_partition(state, {}))])
        loader = MetadataLoader(store)
        await nursery.start(loader.run)
        assert loader.image.topics["t"].partitions == (PartitionState.initial((1,)), state)
        nursery.cancel_scope.cancel()
