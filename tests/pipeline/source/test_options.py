"""Options: the connector's are understood, everything else is refused with a sentence."""

from __future__ import annotations

import pytest

from ottla.pipeline.client import EARLIEST, LATEST, TopicPartition
from ottla.pipeline.errors import OptionError
from ottla.pipeline.source.options import parse_options

BASE = {"kafka.bootstrap.servers": "host:1", "subscribe": "topic"}


def test_the_defaults_are_the_connectors() -> None:
    batch, stream = parse_options(BASE, is_stream=False), parse_options(BASE, is_stream=True)

    assert (batch.starting.everywhere, batch.ending.everywhere) == (EARLIEST, LATEST)
    assert stream.starting.everywhere == LATEST
    assert batch.fail_on_data_loss
    assert not batch.include_headers
    assert not batch.client.read_committed
    assert batch.min_partitions is batch.max_offsets_per_trigger is None


def test_everything_that_the_connector_takes_is_taken() -> None:
    options = parse_options(
        {
            "kafka.bootstrap.servers": "a:1,b:2",
            "assign": '{"t":[0,2]}',
            "startingOffsets": '{"t":{"0":5,"2":-2}}',
            "FAILONDATALOSS": "False",
            "includeHeaders": "true",
            "minPartitions": "8",
            "maxRecordsPerPartition": "100",
            "maxOffsetsPerTrigger": "1000",
            "minOffsetsPerTrigger": "10",
            "maxTriggerDelay": "5s",
            "groupIdPrefix": "ignored",
            "kafka.group.id": "ignored",
            "kafka.max.poll.records": "20000",
            "kafka.isolation.level": "read_committed",
            "kafka.max.partition.fetch.bytes": "4096",
            "kafka.security.protocol": "PLAINTEXT",
        },
        is_stream=True,
    )

    assert options.subscription.assigned == (TopicPartition("t", 0), TopicPartition("t", 2))
    assert options.starting.offsets == {TopicPartition("t", 0): 5, TopicPartition("t", 2): EARLIEST}
    assert not options.fail_on_data_loss
    assert options.include_headers
    assert (options.min_partitions, options.max_records_per_partition) == (8, 100)
    assert (options.max_offsets_per_trigger, options.min_offsets_per_trigger) == (1000, 10)
    assert options.max_trigger_delay_ms == 5000
    assert options.client.read_committed
    assert options.client.max_partition_fetch_bytes == 4096
    assert options.client.bootstrap_servers == (("a", 1), ("b", 2))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"subscribe": None}, "there is none of them"),
        ({"subscribePattern": "t.*"}, "there is subscribe and subscribePattern"),
        ({"subscribe": " , "}, "subscribe is empty"),
        ({"subscribe": None, "subscribePattern": "("}, "not a regular expression"),
        ({"subscribe": None, "subscribePattern": ""}, "subscribePattern is empty"),
        ({"subscribe": None, "assign": "topic"}, r'not JSON .* write {"topic":\[0,1\]}'),
        ({"subscribe": None, "assign": '{"t":0}'}, r'assign has .*write {"topic":\[0,1\]}'),
        ({"subscribe": None, "assign": '{"t":[-1]}'}, "assign has"),
        ({"subscribe": None, "assign": "{}"}, "names no partition"),
        ({"kafka.bootstrap.servers": None}, r"kafka\.bootstrap\.servers is missing"),
        ({"startingOffset": "earliest"}, "no option startingoffset. There are .*startingOffsets"),
        ({"kafka.auto.offset.reset": "earliest"}, r"kafka\.auto\.offset\.reset does not apply"),
        ({"kafka.sasl.kerberos.service.name": "kafka"}, "use format\\('kafka'\\)"),
        ({"kafka.security.protocol": "TLS"}, "kafka.security.protocol is TLS; known are"),
        ({"kafka.isolation.level": "serializable"}, "read_uncommitted, read_committed"),
        ({"kafka.fetch.max.bytes": "many"}, "whole number"),
        ({"kafka.fetch.max.bytes": "9999999999"}, "at most"),
        ({"failOnDataLoss": "perhaps"}, "true, false"),
        ({"minPartitions": "0"}, "above 0"),
        ({"maxTriggerDelay": "soon"}, "such as 15m"),
        ({"startingOffsets": "first"}, r"startingOffsets is not JSON .* write {.*-2 for the earliest"),
        ({"startingOffsets": "[1]"}, "startingOffsets is"),
        ({"startingOffsets": '{"t":5}'}, "startingOffsets has 't': 5"),
        ({"startingOffsets": '{"t":{"0":"5"}}'}, "startingOffsets has '0': '5' for topic 't'"),
        ({"startingOffsets": '{"t":{"0":-3}}'}, "startingOffsets has '0': -3"),
        ({"startingOffsets": '{"t":{"first":1}}'}, "startingOffsets has 'first'"),
        ({"startingOffsetsByTimestamp": '{"t":{"0":-1}}'}, "startingOffsetsByTimestamp has"),
        ({"startingTimestamp": "-5"}, "milliseconds since 1970"),
        ({"startingTimestamp": "yesterday"}, "whole number"),
        ({"startingOffsets": "latest"}, "cannot start at the latest"),
        ({"startingOffsets": '{"t":{"0":-1}}'}, "cannot start at the latest"),
        ({"endingOffsets": "earliest"}, "cannot end at the earliest"),
    ],
)
def test_what_is_wrong_is_a_sentence(changes: dict[str, str | None], sentence: str) -> None:
    options = {name: value for name, value in (BASE | changes).items() if value is not None}

    with pytest.raises(OptionError, match=sentence):
        parse_options(options, is_stream=False)


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    with pytest.raises(OptionError, match=f"{name} is for batch reads"):
        parse_options(BASE | {name: "latest"}, is_stream=True)
