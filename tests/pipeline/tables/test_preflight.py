"""What a job is refused for before it starts: its topic and its checkpoint do not fit."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from compat_tests.brokers.ottla_broker import OttlaBroker
from compat_tests.clients.confluent import Confluent
from ottla.pipeline.client import ClientSettings, Cluster, parse_bootstrap_servers
from ottla.pipeline.tables import preflight
from ottla.pipeline.tables.checkpoint import Identity
from ottla.pipeline.tables.config import TableConfig
from ottla.pipeline.tables.errors import CheckpointError

NewTopic = Callable[..., str]


class EmptyTable:
    """A sink that nothing was written to."""

    def has_rows(self) -> bool:
        return False


class KeptCheckpoint:
    """A checkpoint in memory: made for a topic's id, and at certain offsets."""

    folder = "lake/checkpoints/orders"

    def __init__(self, topic_id: str | None, offsets: dict[str, int]) -> None:
        self._topic_id = topic_id
        self._offsets = offsets
        self._topic = ""

    def identity(self) -> None:
        return None

    def claim(self, table: TableConfig, topic_id: str) -> Identity:
        self._topic = table.topic
        return Identity("app", table.topic, self._topic_id or topic_id, table.path, table.mode, table.decode)

    def next_offsets(self) -> dict[str, dict[str, int]]:
        return {self._topic: self._offsets}


@pytest.fixture
def cluster(broker: OttlaBroker) -> Cluster:
    return Cluster(ClientSettings(parse_bootstrap_servers(broker.bootstrap)))


def check(cluster: Cluster | None, topic: str, topic_id: str | None = None, **offsets: int) -> Identity:
    checkpoint = KeptCheckpoint(topic_id, {name.removeprefix("at_"): offset for name, offset in offsets.items()})
    return preflight.check(cluster, TableConfig(topic, "lake/orders"), checkpoint, EmptyTable())  # type: ignore[arg-type]


def test_a_job_goes_on_where_its_topic_is_what_it_was(cluster: Cluster, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=2, records=5)
    made_for = check(cluster, topic)
    assert check(cluster, topic, made_for.topic_id, at_0=5, at_1=0) == made_for
    preflight.check_topic(cluster, TableConfig(topic, "lake/orders"), made_for, KeptCheckpoint(None, {}))  # type: ignore[arg-type]


def test_a_partition_that_disappeared(cluster: Cluster, new_topic: NewTopic) -> None:
    """Without topic ids (Kafka before 2.8) a topic that was created anew with fewer partitions shows only so."""
    with pytest.raises(CheckpointError, match=r"has lost partition 1 since .*: remove the checkpoint"):
        check(cluster, new_topic(records=5), at_0=5, at_1=5)


def test_a_checkpoint_beyond_the_end(cluster: Cluster, new_topic: NewTopic) -> None:
    with pytest.raises(CheckpointError, match=r"stands at offset 9 of .*, which ends at 5: .* Check bootstrap"):
        check(cluster, new_topic(records=5), at_0=9)


def test_a_topic_of_the_same_name(cluster: Cluster, client: Confluent, new_topic: NewTopic) -> None:
    topic = new_topic(records=5)
    made_for = check(cluster, topic)
    client.delete_topic(topic)
    client.create_topic(topic)
    with pytest.raises(CheckpointError, match=r"was deleted and created again .* into a table of its own"):
        check(cluster, topic, made_for.topic_id)
    with pytest.raises(CheckpointError, match="was deleted and created again"):
        preflight.check_topic(cluster, TableConfig(topic, "lake/orders"), made_for, KeptCheckpoint(None, {}))  # type: ignore[arg-type]


def test_what_only_the_connector_can_reach_is_not_checked(cluster: Cluster, new_topic: NewTopic) -> None:
    """TLS and SASL are the connector's; a checkpoint made so goes on in plain text, and the other way round."""
    topic = new_topic(records=5)
    unchecked = check(None, topic, at_0=99)
    assert check(cluster, topic, unchecked.topic_id, at_0=5) == unchecked
    assert check(None, topic, check(cluster, topic).topic_id).topic == topic
