"""What is checked before a job starts, so that what is wrong is said in a sentence and not in a stack trace."""

from __future__ import annotations

from ottla.pipeline.client import (
    EARLIEST,
    LATEST,
    ClientSettings,
    Cluster,
    TopicPartition,
    parse_bootstrap_servers,
    security_of,
)
from ottla.pipeline.errors import DataLossError, OptionError, TopicError
from ottla.pipeline.source.stream import BEGAN
from ottla.pipeline.tables.checkpoint import Checkpoint, Identity
from ottla.pipeline.tables.config import JobConfig, TableConfig
from ottla.pipeline.tables.errors import CheckpointError, TableError
from ottla.pipeline.tables.sinks import Sink

__all__ = ["check", "check_source", "check_topic", "connect", "lag"]

_PATIENCE_MS = 10_000
_UNCHECKED = "unchecked"


def connect(job: JobConfig) -> Cluster | None:
    """The job's cluster; None where only Spark's connector can reach it (JKS, Kerberos): then nothing is checked."""
    servers = parse_bootstrap_servers(job.bootstrap)
    try:
        security = security_of(job.kafka)
    except OptionError:
        if job.source == "kafka":
            return None
        raise
    return Cluster(
        ClientSettings(servers, client_id="ottla-table", default_api_timeout_ms=_PATIENCE_MS, security=security)
    )


def check(cluster: Cluster | None, table: TableConfig, checkpoint: Checkpoint, sink: Sink) -> Identity:
    """Whether the table's job can go on where its checkpoint left it; raises what says why not.

    BrokerUnavailableError, TopicError, CheckpointError, TableError or DataLossError.
    """
    topic_id = _topic_id(cluster, table)
    if checkpoint.identity() is None and table.mode == "append" and sink.has_rows():
        raise TableError(
            f"The table {table.path} has rows already, but the checkpoint {checkpoint.folder} is new: the topic would "
            "be written into it a second time. Restore the checkpoint with which it was filled, or name another path."
        )
    identity = checkpoint.claim(table, topic_id)
    _check_topic_id(topic_id, identity, checkpoint)
    if cluster is not None:
        _check_offsets(cluster, table, checkpoint)
    return identity


def check_source(source: str, checkpoint: Checkpoint) -> None:
    """CheckpointError if Spark's connector cannot go on from it; else either source goes on where the other was."""
    if source == "kafka" and BEGAN in (checkpoint.planned_offsets() or ()):
        raise CheckpointError(
            f"The checkpoint {checkpoint.folder} has the first batch of source 'ottla' only, in a form that Spark's "
            "connector cannot read: run the job by 'ottla' once more when new records have come, then change source."
        )


def check_topic(cluster: Cluster | None, table: TableConfig, identity: Identity, checkpoint: Checkpoint) -> None:
    """TopicError or CheckpointError if the topic is no longer the one that the checkpoint was made for.

    Spark knows a topic by its name alone, and takes one that was created again for the old one if it is as long.
    """
    _check_topic_id(_topic_id(cluster, table), identity, checkpoint)


def _topic_id(cluster: Cluster | None, table: TableConfig) -> str:
    if cluster is None:
        return _UNCHECKED
    if (found := cluster.topic_ids([table.topic]).get(table.topic)) is not None:
        return found
    names = ", ".join(sorted(cluster.topic_names())[:10]) or "none"
    raise TopicError(
        f"There is no topic {table.topic!r} at {cluster.settings.servers}: create it, or correct topic in the "
        f"configuration. There are: {names}."
    )


def _check_topic_id(topic_id: str, identity: Identity, checkpoint: Checkpoint) -> None:
    if _UNCHECKED not in (topic_id, identity.topic_id) and topic_id != identity.topic_id:
        raise CheckpointError(
            f"Topic {identity.topic!r} was deleted and created again since the checkpoint {checkpoint.folder} was "
            "made: its offsets mean other records now. Remove the checkpoint to read the new topic from its start, "
            "into a table of its own."
        )


def _check_offsets(cluster: Cluster, table: TableConfig, checkpoint: Checkpoint) -> None:
    positions = (checkpoint.next_offsets() or {}).get(table.topic)
    if not positions:
        return
    held = set(cluster.partitions([table.topic]).get(table.topic, []))
    if lost := sorted(int(number) for number in positions if int(number) not in held):
        raise CheckpointError(
            f"Topic {table.topic!r} has lost partition {lost[0]} since the checkpoint {checkpoint.folder} was written: "
            "remove the checkpoint to read the topic again, into a table of its own."
        )
    partitions = [TopicPartition(table.topic, int(number)) for number in positions]
    starts = cluster.offsets(dict.fromkeys(partitions, EARLIEST))
    ends = cluster.offsets(dict.fromkeys(partitions, LATEST), read_committed=False)
    for part in partitions:
        position = positions[str(part.partition)]
        if position > ends[part]:
            raise CheckpointError(
                f"The checkpoint {checkpoint.folder} stands at offset {position} of {part}, which ends at "
                f"{ends[part]}: it belongs to another cluster, or the topic has lost records. Check bootstrap."
            )
        if position < starts[part] and table.on_data_loss == "fail":
            raise DataLossError(
                f"Offsets {position} to {starts[part] - 1} of {part} were removed by retention before they were read. "
                'Write on_data_loss = "continue" to go on from what is left, or read the topic again into another '
                "table; a longer retention.ms keeps it from happening again."
            )


def lag(cluster: Cluster, topic: str, positions: dict[str, int]) -> int:
    """How many records, counted by offsets, lie between positions and the ends of the partitions."""
    partitions = [TopicPartition(topic, int(number)) for number in positions]
    ends = cluster.offsets(dict.fromkeys(partitions, LATEST))
    return sum(max(0, ends[part] - positions[str(part.partition)]) for part in partitions)
