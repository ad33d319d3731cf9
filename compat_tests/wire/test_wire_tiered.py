"""Tiered topics request by request: what is expected is what Apache Kafka 4.4 answers, with a tier that is a folder."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from compat_tests.brokers.process import BrokerProcess
from compat_tests.brokers.tiered import ONLY_THE_END, tiered_kafka, tiered_ottla
from compat_tests.wire.test_wire_produce_fetch import Topic, data_of, make_topic, records, wire  # noqa: F401
from compat_tests.wire.wire import Wire
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.configs import incremental_alter_configs as iac
from ottla.kproto.messages.data.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla.kproto.messages.data.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from ottla.kproto.messages.topics.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.kproto.records import iter_batches

#: Two batches do not fit into one segment.
BATCH_RECORDS = 3
VALUE = b"x" * 200_000
BATCHES = 6
END = BATCHES * BATCH_RECORDS
#: Only the last batch is on the disk.
BORDER = END - BATCH_RECORDS
FIRST_MS = 1_000_000
NOTHING = [(0, -1, -1, -1)]
SET, DELETE = 0, 1


@pytest.fixture(scope="module")
def broker(broker_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    make: dict[str, Callable[..., BrokerProcess]] = {"ottla": tiered_ottla, "kafka": tiered_kafka}
    if broker_kind not in make:
        pytest.skip("it compares one node")
    with make[broker_kind](tmp_path_factory.mktemp(broker_kind)) as process:
        yield process


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def local_start(topic: Topic) -> int:
    return topic.list_offset(-4)[0][2]


@pytest.fixture
def topic(make_topic: Callable[..., Topic]) -> Topic:  # noqa: F811
    """Each batch is a second later than the one before."""
    topic = make_topic(1, retention_ms="-1", **{name.replace(".", "_"): value for name, value in ONLY_THE_END.items()})
    assert [topic.list_offset(spec) for spec in (-5, -6)] == [NOTHING, NOTHING]
    for number in range(BATCHES):
        produced = topic.produce(records(BATCH_RECORDS, VALUE, FIRST_MS + number * 1000))
        assert produced.error_code == ErrorCode.NONE
    until(lambda: local_start(topic) == BORDER)
    return topic


def offsets(topic: Topic, offset: int, **options: Any) -> list[tuple[int, int]]:
    """(first, last) of the batches of a fetch."""
    answer = topic.fetch(offset, max_wait_ms=30_000, **options)
    assert answer.error_code == ErrorCode.NONE
    return [(batch.base_offset, batch.next_offset - 1) for _, batch in iter_batches(data_of(answer))]


def delete_until(topic: Topic, offset: int) -> tuple[int, int]:
    partition = DeleteRecordsPartition(partition_index=0, offset=offset)
    asked = DeleteRecordsTopic(name=topic.name, partitions=[partition])
    answer = topic.wire.call(DeleteRecordsRequest(topics=[asked], timeout_ms=30_000), 2).topics[0].partitions[0]
    return answer.error_code, answer.low_watermark


def test_offsets_by_role_and_time(topic: Topic) -> None:
    for spec, expected in {-1: END, -2: 0, -4: BORDER, -5: BORDER - 1, -6: BORDER}.items():
        assert topic.list_offset(spec) == [(0, -1, expected, 0)]
    assert topic.list_offset(-3) == [(0, FIRST_MS + 5000, BORDER, 0)]
    for asked_ms, found_ms, offset in ((0, 0, 0), (1, 1000, 3), (2500, 3000, 9), (4000, 4000, 12), (4001, 5000, 15)):
        assert topic.list_offset(FIRST_MS + asked_ms) == [(0, FIRST_MS + found_ms, offset, 0)]
    assert topic.list_offset(FIRST_MS + 5001) == NOTHING


def test_a_fetch_of_what_is_not_on_the_disk(topic: Topic) -> None:
    for offset in (0, 1, 7, BORDER - 1, BORDER, END - 1):
        first = offset // BATCH_RECORDS * BATCH_RECORDS
        assert offsets(topic, offset) == [(first, first + 2)]
    # One batch however small the limit, and one segment however large it is; and nothing that has to be waited for.
    for options in (
        {"partition_max_bytes": 100},
        {"partition_max_bytes": 1_500_000, "max_bytes": 1_500_000},
        {"min_bytes": 1_000_000},
    ):
        assert offsets(topic, 4, **options) == [(3, 5)]
    answer = topic.fetch(4, isolation_level=1, max_wait_ms=30_000)
    assert (answer.high_watermark, answer.last_stable_offset, answer.log_start_offset) == (END, END, 0)
    assert answer.aborted_transactions == []
    assert topic.fetch(END + 1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_an_epoch_that_nobody_knows_is_no_hindrance_below_the_border(topic: Topic) -> None:
    for epoch in (-1, 0, 1):
        assert offsets(topic, 4, last_fetched_epoch=epoch) == [(3, 5)]
    assert topic.fetch(BORDER, last_fetched_epoch=1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert [topic.end_of_epoch(epoch) for epoch in (-1, 0, 1)] == [(0, -1, -1), (0, 0, END), (0, -1, -1)]


def test_sizes_are_those_of_the_disk(topic: Topic) -> None:
    asked = [DescribableLogDirTopic(topic=topic.name, partitions=[0])]
    (folder,) = topic.wire.call(DescribeLogDirsRequest(topics=asked), 5).results
    ((found,),) = [each.partitions for each in folder.topics]
    assert len(VALUE) * BATCH_RECORDS < found.partition_size < 2 * len(VALUE) * BATCH_RECORDS


def test_records_are_deleted_up_to_an_offset_on_either_side_of_the_border(topic: Topic) -> None:
    assert delete_until(topic, 4) == (0, 4)
    assert topic.list_offset(-2) == [(0, -1, 4, 0)]
    assert topic.list_offset(0) == [(0, FIRST_MS + 1000, 4, 0)]
    assert topic.fetch(3).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert offsets(topic, 4) == [(3, 5)]
    assert topic.fetch(4, max_wait_ms=30_000).log_start_offset == 4
    assert delete_until(topic, 2) == (0, 4)
    assert [delete_until(topic, offset) for offset in (99, -2)] == [(ErrorCode.OFFSET_OUT_OF_RANGE, -1)] * 2
    assert delete_until(topic, END - 2) == (0, END - 2)
    assert [topic.list_offset(spec) for spec in (-2, -4, -6)] == [[(0, -1, END - 2, 0)]] * 3
    assert topic.list_offset(0) == [(0, FIRST_MS + 5000, END - 2, 0)]
    assert topic.fetch(BORDER).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert offsets(topic, END - 2) == [(BORDER, END - 1)]
    assert delete_until(topic, -1) == (0, END)
    assert [topic.list_offset(spec) for spec in (-2, -4)] == [[(0, -1, END, 0)]] * 2
    assert topic.list_offset(-6) == NOTHING
    for number in range(2):
        topic.produce(records(BATCH_RECORDS, VALUE, FIRST_MS + 9000 + number))
    until(lambda: local_start(topic) == END + BATCH_RECORDS)
    for spec, expected in {-2: 0, -5: 2, -6: 3}.items():
        assert topic.list_offset(spec) == [(0, -1, END + expected, 0)]


LOCAL = "Invalid value {} for configuration local.retention.{}: Value must not be {}"
MORE_THAN_9, NOT_WITH_9 = "more than retention.bytes property value: 9", "-1 as retention.bytes value is set as 9."
COPIED_NO_MORE = (
    "When `remote.log.copy.disable` is set to true, the `local.retention.{0}` and `retention.{0}` must be set to the "
    "identical value because there will be no more logs copied to the remote storage."
)
COMPACTED = "Remote log storage only supports topics with cleanup.policy=delete or cleanup.policy being an empty list."
LAG = (
    "Invalid value 9 for configuration remote.copy.lag.{0}: Value must not exceed local.retention.{0} "
    "(effective value: 8)"
)
ENDED = (
    "It is invalid to disable remote storage without deleting remote data. If you want to keep the remote data and "
    "turn to read only, please set `remote.storage.enable=true,remote.log.copy.disable=true`. If you want to disable "
    "remote storage and delete all remote data, please set "
    "`remote.storage.enable=false,remote.log.delete.on.disable=true`."
)
NEW_TOPICS: tuple[tuple[str, str | None], ...] = (
    ("cleanup.policy=compact", COMPACTED),
    ("cleanup.policy=compact,delete", COMPACTED),
    ("cleanup.policy=", None),
    ("retention.ms=10 local.retention.ms=11", LOCAL.format(11, "ms", "more than retention.ms property value: 10")),
    ("retention.ms=10 local.retention.ms=-1", LOCAL.format(-1, "ms", "-1 as retention.ms value is set as 10.")),
    ("retention.bytes=9 local.retention.bytes=11", LOCAL.format(11, "bytes", MORE_THAN_9)),
    ("retention.bytes=9 local.retention.bytes=-1", LOCAL.format(-1, "bytes", NOT_WITH_9)),
    ("retention.bytes=-1 local.retention.bytes=-1", None),
    ("remote.log.copy.disable=true", None),
    ("remote.log.copy.disable=true retention.ms=20 local.retention.ms=20", None),
    ("remote.log.copy.disable=true retention.ms=20 local.retention.ms=10", COPIED_NO_MORE.format("ms")),
    (
        "remote.log.copy.disable=true retention.ms=9 local.retention.ms=8 retention.bytes=9 local.retention.bytes=8",
        COPIED_NO_MORE.format("bytes"),
    ),
    ("local.retention.ms=8 remote.copy.lag.ms=9", LAG.format("ms")),
    ("retention.ms=8 remote.copy.lag.ms=9", LAG.format("ms")),
    ("local.retention.bytes=8 remote.copy.lag.bytes=9", LAG.format("bytes")),
    ("remote.storage.enable=false local.retention.ms=8 remote.copy.lag.ms=9", None),
    ("remote.storage.enable=false retention.ms=10 local.retention.ms=11", None),
    ("remote.copy.lag.ms=-2", "Invalid value -2 for configuration remote.copy.lag.ms: Value must be at least -1"),
)  # fmt: skip


def test_settings_of_new_topics(wire: Wire) -> None:  # noqa: F811
    asked, expected = [], []
    for number, (told, sentence) in enumerate(NEW_TOPICS):
        configs = {"remote.storage.enable": "true", **dict(pair.split("=") for pair in told.split())}
        settings = [CreatableTopicConfig(name=name, value=value) for name, value in configs.items()]
        asked.append(CreatableTopic(name=f"new-{number}", num_partitions=1, replication_factor=1, configs=settings))
        code = ErrorCode.NONE if sentence is None else ErrorCode.INVALID_CONFIG
        expected.append((f"new-{number}", code, sentence))
    answered = wire.call(CreateTopicsRequest(topics=asked, timeout_ms=30_000, validate_only=True), 7).topics
    assert sorted((each.name, each.error_code, each.error_message) for each in answered) == sorted(expected)


CHANGES: tuple[tuple[str, str | None], ...] = (
    ("remote.storage.enable=false", ENDED),
    ("remote.storage.enable", ENDED),
    ("cleanup.policy=compact", COMPACTED),
    ("remote.log.copy.disable=true", None),
    ("local.retention.ms=5", COPIED_NO_MORE.format("ms")),
    ("remote.log.copy.disable=false local.retention.ms=5", None),
    ("remote.log.copy.disable=true", COPIED_NO_MORE.format("ms")),
    ("retention.ms=4", LOCAL.format(5, "ms", "more than retention.ms property value: 4")),
    ("remote.storage.enable=false remote.log.delete.on.disable=true", None),
    ("remote.storage.enable=true", None),
    ("remote.log.delete.on.disable", None),
    ("remote.storage.enable", ENDED),
    ("remote.log.delete.on.disable=true", None),
    ("remote.storage.enable", None),
    ("cleanup.policy=compact", None),
    ("remote.storage.enable=true", COMPACTED),
    ("cleanup.policy=delete remote.storage.enable=true", None),
)


def test_changes_of_settings(wire: Wire, make_topic: Callable[..., Topic]) -> None:  # noqa: F811
    """Each on top of those that were taken; a name without a value is deleted."""
    name = make_topic(1, remote_storage_enable="true").name
    for told, sentence in CHANGES:
        pairs = [pair.partition("=") for pair in told.split()]
        configs = [
            iac.AlterableConfig(name=key, config_operation=SET if equals else DELETE, value=value if equals else None)
            for key, equals, value in pairs
        ]
        resource = iac.AlterConfigsResource(resource_type=2, resource_name=name, configs=configs)
        (answer,) = wire.call(iac.IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
        code = ErrorCode.NONE if sentence is None else ErrorCode.INVALID_CONFIG
        assert (answer.error_code, answer.error_message) == (code, sentence), told
