"""Letters of a dead-letter queue: what is in a round of them, and what is tried until it is written or given up."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
import trio
from trio.testing import MockClock

from ottla.client.errors import ConnectionLostError
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.data.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from ottla.kproto.records import Compression, Record, build_batch, iter_records, parse_batch_header
from ottla.metadata.errors import InvalidReplicationFactorError, InvalidTopicError, TopicAlreadyExistsError
from ottla.metastore.errors import StoreUnavailableError
from ottla.replica.errors import NotLeaderError
from ottla.server.share import dead_letters
from ottla.server.share.config import ShareConfig
from ottla.server.share.dead_letters import MAX_ROUND_RECORDS, DeadLetterQueues, build_round
from ottla.server.share.records import Cause, Dead
from ottla.settings.config import BrokerConfig
from ottla.storage.clock import ManualClock
from ottla.storage.errors import RecordTooLargeError
from tests.doubles.worker_threads import InPlace

NOW_MS = 1_700_000_000_000
SOURCE: Any = SimpleNamespace(group_id="g", topic="t", partition=3)
ENABLED = {"errors.deadletterqueue.group.enable": "true"}


def dead(first: int, last: int, count: int = 1, cause: Cause = Cause.REJECTED) -> Dead:
    return Dead(first, last, count, cause)


def read(batch: bytes) -> list[Record]:
    return list(iter_records(batch))


class TestRound:
    def test_a_letter(self) -> None:
        batch, written = build_round(SOURCE, [dead(7, 7, 5, Cause.DELIVERED_TOO_OFTEN)], None, 1_000_000, NOW_MS)
        header = parse_batch_header(batch)
        assert (header.compression, header.producer_id, header.is_control) == (Compression.NONE, -1, False)
        (letter,) = read(batch)
        assert (letter.key, letter.value, letter.timestamp_ms) == (None, None, NOW_MS)
        assert letter.headers == (
            ("__dlq.errors.topic", b"t"),
            ("__dlq.errors.partition", b"3"),
            ("__dlq.errors.offset", b"7"),
            ("__dlq.errors.group", b"g"),
            ("__dlq.errors.delivery.count", b"5"),
            ("__dlq.errors.message", b"Offset delivery count exceeded the threshold."),
        )
        assert written == [(7, 7)]

    def test_a_round_has_an_end(self) -> None:
        asked = [dead(0, 299), dead(400, 10_000)]
        batch, written = build_round(SOURCE, asked, None, 1_000_000, NOW_MS)
        assert written == [(0, 299), (400, 599)]
        assert len(read(batch)) == MAX_ROUND_RECORDS
        batch, written = build_round(SOURCE, asked, None, 10_000, NOW_MS)
        assert len(batch) <= 10_000
        assert written == [(0, len(read(batch)) - 1)]

    def test_one_letter_is_written_however_little_the_queue_takes(self) -> None:
        _, written = build_round(SOURCE, [dead(0, 9)], None, 10, NOW_MS)
        assert written == [(0, 0)]

    def test_copies_reach_as_far_as_was_read(self) -> None:
        copied = b"".join(
            build_batch([Record(key=b"k%d" % offset, value=b"v%d" % offset) for offset in range(first, first + 3)],
                        base_offset=first, compression=codec)
            for first, codec in ((10, Compression.NONE), (13, Compression.ZSTD))
        )  # fmt: skip
        batch, written = build_round(SOURCE, [dead(11, 12), dead(14, 90)], copied, 1_000_000, NOW_MS)
        assert written == [(11, 12), (14, 15)]
        assert [(it.key, it.value) for it in read(batch)] == [(b"k%d" % n, b"v%d" % n) for n in (11, 12, 14, 15)]
        batch, written = build_round(SOURCE, [dead(11, 15)], copied[:-1], 1_000_000, NOW_MS)
        assert written == [(11, 12)]

    @pytest.mark.parametrize("copied", [None, b"", b"x" * 100])
    def test_what_cannot_be_read_has_no_copy(self, copied: bytes | None) -> None:
        batch, written = build_round(SOURCE, [dead(0, 4)], copied, 1_000_000, NOW_MS)
        assert written == [(0, 4)]
        assert {it.value for it in read(batch)} == {None}

    def test_what_is_gone_has_no_copy(self) -> None:
        copied = build_batch([Record(value=b"later")], base_offset=5)
        batch, written = build_round(SOURCE, [dead(2, 5)], copied, 1_000_000, NOW_MS)
        assert written == [(2, 5)]
        assert [it.value for it in read(batch)] == [None, None, None, b"later"]

    def test_what_is_too_large_for_the_queue_has_no_copy(self) -> None:
        large = build_batch([Record(value=bytes(5_000))], compression=Compression.GZIP)
        for copied in (large, build_batch([Record(value=bytes(1_990))])):
            batch, written = build_round(SOURCE, [dead(0, 0)], copied, 2_000, NOW_MS)
            assert written == [(0, 0)]
            assert len(batch) <= 2_000
            assert read(batch)[0].value is None

    def test_what_inflates_far_is_read_no_further_than_a_round_needs(self, monkeypatch: pytest.MonkeyPatch) -> None:
        opened = []

        def noted(buf: Any, pos: int, header: Any, **options: Any) -> Any:
            opened.append(header.base_offset)
            return iter_records(buf, pos, header, **options)

        monkeypatch.setattr(dead_letters, "iter_records", noted)
        batches = [
            build_batch([Record(value=bytes(600_000))], base_offset=offset, compression=Compression.GZIP)
            for offset in range(6)
        ]
        batch, written = build_round(SOURCE, [dead(1, 1), dead(3, 5)], b"".join(batches), 1_000_000, NOW_MS)
        assert opened == [1, 3]  # and neither what is not dead, nor what would be too much
        assert written == [(1, 1)]
        assert len(batch) < 1_000_000
        copied = b"".join(batches[3:])
        assert build_round(SOURCE, [dead(3, 5)], copied, 1_000_000, NOW_MS)[1] == [(3, 3)]


class World:
    """Queues whose topic is led by node 1, which is this one, or by node 2."""

    def __init__(self, *, leader: int = 1, configs: dict[str, str] | None = None, **settings: str) -> None:
        self.leader = leader
        self.sent: list[tuple[float, int]] = []
        self.outcomes: list[Any] = []
        self.created: list[Any] = []
        self.creation: Exception | None = None
        self.config = ShareConfig(dead_letter_topic="dlq.q")
        partitions = [SimpleNamespace(leader=leader)] * 2
        configs = ENABLED if configs is None else configs
        self.topic = SimpleNamespace(name="dlq.q", topic_id=UUID(int=5), partitions=partitions, configs=configs)
        self.topics: dict[str, Any] = {"dlq.q": self.topic}
        self.share: Any = SimpleNamespace(
            key=SimpleNamespace(group_id="g", topic_id=UUID(int=1), partition=3),
            partition=SimpleNamespace(topic="t", index=3),
            leader_epoch=1,
            is_active=True,
        )
        controller: Any = SimpleNamespace(
            node_id=1, image=SimpleNamespace(topic=self.topics.get), create_topic=self.create_topic
        )
        replica_manager: Any = SimpleNamespace(node_id=1, append=self.append)
        self.queues = DeadLetterQueues(
            replica_manager=replica_manager,
            controller=controller,
            peers=self,
            config=BrokerConfig({name.replace("_", "."): value for name, value in settings.items()}),
            configs=self,
            clock=ManualClock(NOW_MS),
            threads=InPlace(),
        )

    def of_share_group(self, group_id: str) -> ShareConfig:
        return self.config

    async def create_topic(self, topic: Any) -> Any:
        await trio.lowlevel.checkpoint()
        self.created.append(topic)
        if self.creation is not None:
            raise self.creation
        self.topics[topic.name] = self.topic
        return self.topic

    def _outcome(self, index: int) -> Any:
        self.sent.append((trio.current_time(), index))
        return self.outcomes.pop(0) if self.outcomes else None

    async def append(self, entries: Any, *, required_acks: int, timeout_ms: int) -> Any:
        await trio.lowlevel.checkpoint()
        assert required_acks == -1
        ((key, _),) = entries.items()
        assert key.topic_id == UUID(int=5)
        return {key: SimpleNamespace(error=self._outcome(key.partition))}

    async def call(self, node_id: int, request: Any, **options: Any) -> Any:
        await trio.lowlevel.checkpoint()
        assert (node_id, request.acks) == (2, -1)
        (topic,) = request.topic_data
        assert topic.topic_id == UUID(int=5)
        outcome = self._outcome(topic.partition_data[0].index)
        if isinstance(outcome, Exception):
            raise outcome
        partition = PartitionProduceResponse(index=1, error_code=outcome or ErrorCode.NONE)
        return ProduceResponse(responses=[TopicProduceResponse(partition_responses=[partition])])

    async def write(self, *what: Dead) -> list[tuple[int, int]]:
        return await self.queues.write(self.share, what or [dead(0, 4)])

    @property
    def counted(self) -> tuple[int, int, int]:
        counters = self.queues.counters["g"]
        return counters.records, counters.requests, counters.failed_requests


PASSING = {1: NotLeaderError("another"), 2: ErrorCode.NOT_LEADER_OR_FOLLOWER}
LASTING = {1: RecordTooLargeError("too large"), 2: ErrorCode.MESSAGE_TOO_LARGE}


@pytest.mark.parametrize("leader", [1, 2])
async def test_it_is_written_by_the_partitions_leader(leader: int, autojump_clock: MockClock) -> None:
    world = World(leader=leader)
    assert await world.write() == [(0, 4)]
    assert [index for _, index in world.sent] == [1]  # partition 3 of a queue of two
    assert world.counted == (5, 1, 0)


@pytest.mark.parametrize("leader", [1, 2])
@pytest.mark.usefixtures("without_jitter")
async def test_what_passes_is_tried_again(leader: int, autojump_clock: MockClock) -> None:
    world = World(leader=leader)
    world.outcomes = [PASSING[leader]] * 4
    if leader != 1:
        world.outcomes[1] = ConnectionLostError("gone")
    began = trio.current_time()
    assert await world.write() == [(0, 4)]
    assert [time - began for time, _ in world.sent] == [0, 1, 3, 7, 15]
    assert world.counted == (5, 5, 4)


@pytest.mark.parametrize("leader", [1, 2])
async def test_it_is_given_up_after_five_attempts(
    leader: int, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(leader=leader)
    world.outcomes = [PASSING[leader]] * 9
    with caplog.at_level(logging.WARNING):
        assert await world.write(dead(0, 4), dead(7, 7)) == [(0, 4), (7, 7)]
    assert len(world.sent) == 5
    assert world.counted == (0, 5, 5)
    assert "6 records of t-3 are archived for group g and not in its dead-letter queue" in caplog.text


@pytest.mark.parametrize("leader", [1, 2])
async def test_what_lasts_is_given_up_at_once(leader: int, autojump_clock: MockClock) -> None:
    world = World(leader=leader)
    world.outcomes = [LASTING[leader]]
    assert await world.write() == [(0, 4)]
    assert world.counted == (0, 1, 1)


async def test_a_share_partition_that_has_ended_meanwhile_gets_no_more(autojump_clock: MockClock) -> None:
    world = World()
    world.outcomes = [PASSING[1]] * 9
    world.share.is_active = False
    assert await world.write() == []
    assert len(world.sent) == 1


@pytest.mark.parametrize(
    ("name", "words", "configs"),
    [
        ("", "is empty", ENABLED),
        ("__dlq", "cannot start with __", ENABLED),
        ("other", "does not comply with the DLQ topic prefix in share group: g, topic: other, prefix: dlq.", ENABLED),
        ("dlq.absent", "does not exist and auto create is disabled", ENABLED),
        ("dlq.q", "DLQ is not enabled on configured DLQ topic for share group: g, topic: dlq.q.", {}),
    ],
)
async def test_what_is_no_queue(
    name: str, words: str, configs: dict[str, str], autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(configs=configs)
    world.config = ShareConfig(dead_letter_topic=name)
    assert await world.write() == [(0, 4)]
    assert words in caplog.text
    assert not world.sent


async def test_any_name_will_do_without_a_prefix(autojump_clock: MockClock) -> None:
    world = World(errors_deadletterqueue_topic_name_prefix="")
    world.topics["mine"] = world.topic
    world.config = ShareConfig(dead_letter_topic="mine")
    await world.write()
    assert len(world.sent) == 1


class TestCreation:
    @pytest.fixture
    async def world(self) -> World:
        world = World(errors_deadletterqueue_auto_create_topics_enable="true")
        del world.topics["dlq.q"]
        return world

    async def test_it_is_made(self, world: World, autojump_clock: MockClock) -> None:
        assert await world.write() == [(0, 4)]
        (topic,) = world.created
        assert (topic.name, topic.num_partitions, topic.replication_factor) == ("dlq.q", -1, -1)
        assert topic.configs == ENABLED | {"message.timestamp.type": "CreateTime"}
        assert len(world.sent) == 1

    @pytest.mark.parametrize("error", [StoreUnavailableError, InvalidReplicationFactorError, TopicAlreadyExistsError])
    async def test_what_passes_is_tried_again(
        self, world: World, error: type[Exception], autojump_clock: MockClock
    ) -> None:
        world.creation = error("not now")
        assert await world.write() == [(0, 4)]
        assert len(world.created) == 5

    async def test_what_lasts_is_given_up(self, world: World, autojump_clock: MockClock) -> None:
        world.creation = InvalidTopicError("no name")
        assert await world.write() == [(0, 4)]
        assert len(world.created) == 1
