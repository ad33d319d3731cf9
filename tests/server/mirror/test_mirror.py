"""A cluster that mirrors another one: what is copied, and what becomes of it when the source changes."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
import trio

from ottla.coordinator.errors import CoordinatorLoadInProgressError
from ottla.coordinator.group.offset_and_metadata import CommittedOffset, OffsetToCommit, TopicPartition
from ottla.kproto.records import iter_batches
from ottla.metadata.changes.config_changes import ConfigChange, ConfigOperation
from ottla.metadata.changes.partition_changes import in_epoch
from ottla.metadata.changes.topic_changes import NewPartitions
from ottla.metadata.errors import InvalidConfigError
from ottla.metadata.image import ResourceType
from ottla.replica.errors import MirroredTopicError
from ottla.server.mirror.source import Source
from ottla.settings.mirrored import MIRROR_SETTING, Mirroring
from tests.server.mirror.conftest import Pair, RunPair, Side, until

PRODUCER: dict[str, Any] = {"producer_id": 7, "producer_epoch": 1}


async def commit(side: Side, group: str, topic: str, offset: int, index: int = 0) -> None:
    image = side.broker.metadata.topic(topic)
    assert image is not None
    await side.broker.controller.ensure_topic("__consumer_offsets")
    key = TopicPartition(topic, index)
    committed = OffsetToCommit(offset, 0, "note", topic_id=image.topic_id)

    async def is_done() -> bool:
        try:
            return not await side.broker.group_coordinator.offsets.commit(group, {key: committed})
        except CoordinatorLoadInProgressError:
            return False

    await until(is_done)


def committed(side: Side, group: str, topic: str, index: int = 0) -> int | None:
    if side.broker.metadata.topic("__consumer_offsets") is None:
        return None
    key = TopicPartition(topic, index)
    try:
        found = side.broker.group_coordinator.offsets.fetch(group, [key], require_stable=False)[key]
    except CoordinatorLoadInProgressError:
        return None
    return found.offset if isinstance(found, CommittedOffset) and found.metadata == "note" else None


async def end(pair: Pair, topic: str, *, open_transactions: bool = False) -> None:
    """What `ottla mirror promote` does."""
    image = pair.mirror.broker.metadata.topic(topic)
    assert image is not None
    ending = str(image.mirrored._replace(mirroring=Mirroring.ENDING))
    await pair.mirror.alter(ResourceType.TOPIC, topic, ConfigChange(MIRROR_SETTING, ConfigOperation.SET, ending))
    if open_transactions:
        await pair.mirror.append(topic, marker=False, **PRODUCER)
    await pair.mirror.alter(ResourceType.TOPIC, topic, ConfigChange(MIRROR_SETTING, ConfigOperation.DELETE))


async def test_a_copy_is_the_same_to_the_byte_and_stays_so(run_pair: RunPair) -> None:
    async with run_pair() as pair:
        source, mirror = pair.source, pair.mirror
        await source.node.create_topic("orders", 2, retention_ms="86400000000", max_message_bytes="2000000")
        await source.node.create_topic("other")
        for number in range(20):
            await source.append("orders", b"value %d" % number, b"more", index=number % 2)
        await pair.begin("orders,!other")
        await pair.until_same("orders", (0, 1))
        await source.append("orders", b"a" * 500, b"b", base_sequence=0, **PRODUCER)
        await source.append("orders", b"t", base_sequence=2, is_transactional=True, producer_id=9, producer_epoch=0)
        await pair.until_same("orders", (0, 1))
        copy = mirror.partition("orders")
        assert (
            copy.log.last_stable_offset == source.partition("orders").log.last_stable_offset < copy.log.high_watermark
        )
        image = mirror.broker.metadata.topic("orders")
        assert image is not None
        assert image.configs["max.message.bytes"] == "2000000"
        assert mirror.broker.metadata.topic("other") is None
        assert mirror.broker.metadata.topic("__consumer_offsets") is None
        assert copy.log.config.delete is False  # only what the source deletes is deleted

        await source.broker.controller.create_partitions([NewPartitions("orders", 3)])
        await source.append("orders", b"in the new partition", index=2)
        await source.alter(
            ResourceType.TOPIC,
            "orders",
            ConfigChange("max.message.bytes", ConfigOperation.DELETE),
            ConfigChange("cleanup.policy", ConfigOperation.SET, "compact"),
        )
        await pair.until_same("orders", (0, 1, 2))

        def is_configured() -> bool:
            image = mirror.broker.metadata.topic("orders")
            return image is not None and "max.message.bytes" not in image.configs and copy.log.config.compact

        await until(is_configured)


async def test_groups_come_after_the_records_that_they_have_read(run_pair: RunPair) -> None:
    async with run_pair() as pair:
        await pair.source.node.create_topic("orders")
        await pair.source.node.create_topic("local")
        for number in range(5):
            await pair.source.append("orders", b"%d" % number)
        await commit(pair.source, "billing", "orders", 3)
        await commit(pair.source, "ignored", "orders", 3)
        await commit(pair.source, "billing", "local", 0)
        await pair.begin("orders", ottla_mirror_groups="b*")
        await until(lambda: committed(pair.mirror, "billing", "orders") == 3)
        assert committed(pair.mirror, "ignored", "orders") is None
        assert committed(pair.mirror, "billing", "local") is None
        await commit(pair.source, "billing", "orders", 900)  # beyond what there is: it waits
        await commit(pair.source, "bookkeeping", "orders", 5)
        await until(lambda: committed(pair.mirror, "bookkeeping", "orders") == 5)
        assert committed(pair.mirror, "billing", "orders") == 3
        await commit(pair.source, "billing", "orders", 1)  # and it may go back
        await until(lambda: committed(pair.mirror, "billing", "orders") == 1)


async def test_nobody_writes_to_a_mirror_before_it_ends(run_pair: RunPair) -> None:
    async with run_pair() as pair:
        source, mirror = pair.source, pair.mirror
        await source.node.create_topic("orders")
        await source.append("orders", b"open", base_sequence=0, is_transactional=True, **PRODUCER)
        await pair.begin()
        await pair.until_same("orders")
        with pytest.raises(MirroredTopicError):
            await mirror.append("orders", b"mine")
        with pytest.raises(MirroredTopicError):
            await mirror.append("orders", marker=False, **PRODUCER)
        with pytest.raises(InvalidConfigError):
            await mirror.alter(ResourceType.TOPIC, "orders", ConfigChange(MIRROR_SETTING, ConfigOperation.DELETE))
        with pytest.raises(InvalidConfigError):
            await mirror.node.create_topic("faked", ottla_mirror="following AAAAAAAAAAAAAAAAAAAAAQ")
        epoch = mirror.partition("orders").leader_epoch

        await end(pair, "orders", open_transactions=True)
        partition = mirror.partition("orders")
        assert partition.leader_epoch == epoch + 2
        assert partition.log.last_stable_offset == partition.log.high_watermark == 2
        assert await mirror.append("orders", b"mine") == 2
        await source.append("orders", b"too late")
        await pair.begin("*", ottla_mirror_groups="x")  # a link that is still there leaves it alone
        await until(lambda: "orders" in problems(mirror))
        assert mirror.partition("orders").log.log_end_offset == 3


def problems(side: Side) -> dict[str, str]:
    progress = side.broker.mirror.progress
    return {} if progress is None else progress.problems


async def test_a_mirror_ends_while_it_is_being_copied(run_pair: RunPair, caplog: pytest.LogCaptureFixture) -> None:
    async with run_pair() as pair, trio.open_nursery() as nursery:
        source, mirror = pair.source, pair.mirror
        topics = [f"topic-{number}" for number in range(4)]
        for topic in topics:
            await source.node.create_topic(topic)

        async def produce() -> None:
            while True:
                for topic in topics:
                    await source.append(topic, b"x" * 1000, b"y" * 1000)
                await trio.sleep(0.005)

        nursery.start_soon(produce)
        await pair.begin()
        for topic in topics[:2]:
            await until(lambda topic=topic: is_begun(mirror, topic))  # type: ignore[misc]
            await end(pair, topic)
            cut = mirror.partition(topic).log.log_end_offset
            assert await mirror.append(topic, b"mine") == cut
            assert mirror.partition(topic).log.latest_epoch == mirror.partition(topic).leader_epoch
        for topic in topics[2:]:
            await until(lambda topic=topic: is_begun(mirror, topic))  # type: ignore[misc]
            image = mirror.broker.metadata.topic(topic)
            assert image is not None
            await mirror.broker.controller.delete_topics([image.topic_id])
        for topic in topics[2:]:  # and is copied anew
            await until(lambda topic=topic: is_begun(mirror, topic))  # type: ignore[misc]
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            for topic in topics[:2]:
                _, end_offset, data = await mirror.content(topic)
                _, _, whole = await source.content(topic)
                *copied, own = [data[at : at + header.size_bytes] for at, header in iter_batches(data)]
                assert whole.startswith(b"".join(copied))
                assert b"mine" in own
                assert end_offset == 2 * len(copied) + 1
            for topic in topics[2:]:
                await pair.until_same(topic)
    assert not [it for it in caplog.records if it.levelname in ("ERROR", "CRITICAL")]


def is_begun(side: Side, topic: str) -> bool:
    return side.broker.metadata.topic(topic) is not None and side.partition(topic).log.log_end_offset > 20


async def test_a_producer_id_of_the_source_is_not_given_again(run_pair: RunPair) -> None:
    async with run_pair() as pair:
        await pair.source.node.create_topic("orders")
        before = await pair.mirror.broker.producer_ids.next()
        await pair.begin()
        await pair.until_same("orders")
        assert before < 1 << 32 <= await pair.mirror.broker.producer_ids.next() < 1 << 63


async def test_leader_epochs_are_those_of_the_source_or_later(run_pair: RunPair) -> None:
    async with run_pair() as pair:
        await pair.source.node.create_topic("orders")
        await pair.source.append("orders", b"early")
        await pair.begin()
        await pair.until_same("orders")
        topic = pair.source.broker.metadata.topic("orders")
        assert topic is not None
        key = (topic.topic_id, 0)
        await pair.source.broker.controller.change_partitions({key: lambda state: in_epoch(state, 40)})
        await pair.source.append("orders", b"later")
        await pair.until_same("orders")
        mirror = pair.mirror.partition("orders")
        assert mirror.leader_epoch >= 40
        assert mirror.log.latest_epoch == 40
        assert mirror.end_offset_for_epoch(39) == (0, 1)
        assert mirror.epoch_at(1) == 40


async def test_what_the_source_has_lost_is_cut(run_pair: RunPair) -> None:
    async with run_pair() as pair:
        await pair.source.node.create_topic("orders")
        for number in range(10):
            await pair.source.append("orders", b"%d" % number)
        await pair.begin()
        await pair.until_same("orders")
        # As after an unclean election: another history from offset 6 on, in a new epoch.
        await pair.source.partition("orders").log.truncate_to(6)
        key = (pair.source.partition("orders").topic_id, 0)
        await pair.source.broker.controller.change_partitions({key: lambda state: in_epoch(state, 9)})
        for _ in range(8):
            await pair.source.append("orders", b"other")
        await pair.until_same("orders")
        assert pair.mirror.partition("orders").log.log_end_offset == 14


async def test_what_the_source_deletes_is_deleted(run_pair: RunPair) -> None:
    async with run_pair() as pair:
        await pair.source.node.create_topic("orders", 2)
        for _ in range(4):
            await pair.source.append("orders", b"1", b"2", b"3")
            await pair.source.append("orders", b"1", b"2", b"3", index=1)
        await pair.source.partition("orders").log.advance_log_start_offset(4)  # inside of a batch
        await pair.source.partition("orders", 1).log.advance_log_start_offset(12)  # all
        await pair.begin()
        await pair.until_same("orders", (0, 1))
        await pair.source.partition("orders").log.advance_log_start_offset(10)
        await pair.source.append("orders", b"1", index=1)
        await pair.until_same("orders", (0, 1))
        assert pair.mirror.partition("orders").log.log_start_offset == 10
        assert pair.mirror.partition("orders", 1).log.log_start_offset == 12


async def test_a_topic_that_was_made_again_is_another_one(run_pair: RunPair) -> None:
    async with run_pair() as pair:
        first: UUID = await pair.source.node.create_topic("orders")
        await pair.source.append("orders", b"first")
        await pair.begin()
        await pair.until_same("orders")
        await pair.source.broker.controller.delete_topics([first])
        await until(lambda: "deleted" in problems(pair.mirror).get("orders", ""))
        await pair.source.node.create_topic("orders", 2)
        await pair.source.append("orders", b"second")
        await until(lambda: "created again" in problems(pair.mirror).get("orders", ""))
        assert b"first" in (await pair.mirror.content("orders"))[2]
        topic = pair.mirror.broker.metadata.topic("orders")
        assert topic is not None
        await pair.mirror.broker.controller.delete_topics([topic.topic_id])
        await pair.until_same("orders", (0, 1))
        assert b"second" in (await pair.mirror.content("orders"))[2]


async def test_offsets_of_a_topic_that_was_made_again_are_not_those_of_the_first(run_pair: RunPair) -> None:
    """The records here are the first one's, the only copy that is left; a group reads on where it was in them."""
    async with run_pair() as pair:
        source, mirror = pair.source, pair.mirror
        first: UUID = await source.node.create_topic("orders")
        await source.node.create_topic("other")
        for number in range(8):
            await source.append("orders", b"%d" % number)
            await source.append("other", b"%d" % number)
        await commit(source, "billing", "orders", 3)
        await pair.begin()
        await until(lambda: committed(mirror, "billing", "orders") == 3)
        await source.broker.controller.delete_topics([first])
        await until(lambda: source.broker.metadata.topic("orders") is None)
        await source.node.create_topic("orders")
        for number in range(8):
            await source.append("orders", b"again %d" % number)
        await commit(source, "billing", "orders", 6)
        # What is copied later, in the same turn, tells that the turn has been.
        await commit(source, "billing", "other", 5)
        await until(lambda: committed(mirror, "billing", "other") == 5)
        assert committed(mirror, "billing", "orders") == 3
        topic = mirror.broker.metadata.topic("orders")
        assert topic is not None
        await mirror.broker.controller.delete_topics([topic.topic_id])
        await until(lambda: committed(mirror, "billing", "orders") == 6)
        assert b"again" in (await mirror.content("orders"))[2]


async def test_gaps_that_compaction_left_stay_gaps(run_pair: RunPair) -> None:
    async with run_pair(log_segment_bytes="1048576") as pair:
        await pair.source.node.create_topic("orders", cleanup_policy="compact", min_cleanable_dirty_ratio="0")
        for number in range(12):
            await pair.source.append("orders", b"a" * 90_000, b"b" * 90_000, b"%d" % number)
        before = await pair.source.content("orders")
        # Only segments that are sealed are cleaned.
        await pair.source.broker.log_manager.maintenance.wait_idle()
        await pair.source.broker.log_manager.cleaner.clean()
        after = await pair.source.content("orders")
        assert after[1] == before[1] == 36
        assert len(after[2]) < len(before[2]) / 2
        await pair.begin()
        await pair.until_same("orders")
        assert pair.mirror.partition("orders").log.log_end_offset == 36


JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required"


async def test_a_source_that_asks_who_reads_it(run_pair: RunPair) -> None:
    async with run_pair(
        listeners="SASL_PLAINTEXT://127.0.0.1:0",
        sasl_enabled_mechanisms="PLAIN",
        **{"listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{JAAS} user_bob="b-secret";'},
    ) as pair:
        await pair.source.node.create_topic("orders")
        await pair.source.append("orders", b"secret")
        login = f'sasl.jaas.config={JAAS} username="bob" password="b-secret";'
        properties = f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n{login}\n"
        await pair.begin(ottla_mirror_client_properties=properties)
        await pair.until_same("orders")


async def test_groups_of_the_others_are_copied_while_a_broker_of_the_source_is_gone(
    run_pair: RunPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with run_pair() as pair:
        await pair.source.node.create_topic("orders")
        await pair.source.append("orders", b"1", b"2")
        await commit(pair.source, "billing", "orders", 2)
        monkeypatch.setattr(Source, "broker_ids", (99, pair.source.broker.node_id))  # one of them is nowhere
        await pair.begin()
        await until(lambda: committed(pair.mirror, "billing", "orders") == 2)
