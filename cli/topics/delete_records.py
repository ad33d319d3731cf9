"""`ottla topic delete-records`: delete the oldest records of partitions, up to an offset or a time."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from typing import Final

from ottla.cli import CommandError, options
from ottla.cli.groups.seek import partitions_named
from ottla.cli.where import offsets
from ottla.client.client import Client
from ottla.client.errors import BrokerError
from ottla.client.offsets import TopicPartition
from ottla.kproto.messages.data.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic

_END: Final = -1
"""As an offset in a DeleteRecords request: the high watermark."""


def delete_records(client: Client, arguments: argparse.Namespace) -> None:
    """Delete what comes before `--before` in each partition, and print where each begins then."""
    partitions = partitions_named(client, arguments.partitions)
    starts, ends = offsets(client, partitions, "beginning"), offsets(client, partitions, "end")
    wanted = offsets(client, partitions, arguments.before)
    target = {each: min(max(wanted[each], starts[each]), ends[each]) for each in partitions}
    if not arguments.dry_run:
        # Where the end is when the records are deleted, the leader knows best.
        is_all = arguments.before == "end"
        asked = {each: _END if is_all else offset for each, offset in target.items() if offset > starts[each]}
        target |= _delete(client, asked, arguments.timeout)
    moves = [(each, starts[each], target[each]) for each in partitions]
    if arguments.json:
        print(json.dumps([{**each._asdict(), "from": before, "to": after} for each, before, after in moves], indent=2))
        return
    options.print_table(
        ("TOPIC", "PARTITION", "BEGAN AT", "BEGINS AT", "DELETED"),
        ((each.topic, each.partition, before, after, after - before) for each, before, after in moves),
    )


def _delete(client: Client, target: Mapping[TopicPartition, int], timeout_seconds: float) -> dict[TopicPartition, int]:
    """Each leader deletes in its own partitions; where they begin now. Raises CommandError with all that failed."""
    leaders = {
        TopicPartition(topic.name or "", state.partition_index): state.leader_id
        for topic in (client.metadata(sorted({each.topic for each in target})).topics if target else ())
        for state in topic.partitions
    }
    failures = []
    begins: dict[TopicPartition, int] = {}
    for leader in sorted({leaders[each] for each in target}):
        topics: dict[str, DeleteRecordsTopic] = {}
        for each, offset in target.items():
            if leaders[each] == leader:
                named = topics.setdefault(each.topic, DeleteRecordsTopic(name=each.topic))
                named.partitions.append(DeleteRecordsPartition(partition_index=each.partition, offset=offset))
        request = DeleteRecordsRequest(topics=list(topics.values()), timeout_ms=int(timeout_seconds * 1000))
        for topic in client.broker(leader).call(request).topics:
            for partition in topic.partitions:
                begins[TopicPartition(topic.name, partition.partition_index)] = partition.low_watermark
                if partition.error_code:
                    what = f"{topic.name}-{partition.partition_index}"
                    failures.append(str(BrokerError(partition.error_code, what=what)))
    if failures:
        raise CommandError("; ".join(failures))
    return begins
