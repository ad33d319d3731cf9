"""The requests that describe what a history left behind: its topics, groups and transactions, as steps like others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from compat_tests.differential.history import History, Step

FIRST_ID: Final = 100_000
_CONFIGS: Final = ["cleanup.policy", "compression.type", "max.message.bytes", "retention.ms", "segment.bytes"]
_PARTITIONS: Final = (0, 1)


def end_state(history: History, first_id: int = FIRST_ID) -> tuple[Step, ...]:
    asked = [*_of_topics(history.topics), *_of_groups(history.groups), *_of_transactions(history.transactional_ids)]
    return tuple(
        Step(id=first_id + number, connection="end", api=api, version=version, fields=fields)
        for number, (api, version, fields) in enumerate(asked)
    )


_Asked = tuple[str, int, dict[str, Any]]


def _of_topics(names: tuple[str, ...]) -> Iterator[_Asked]:
    if not names:
        return
    yield "METADATA", 12, {"topics": [{"name": name} for name in names], "allow_auto_topic_creation": False}
    resources = [{"resource_type": 2, "resource_name": name, "configuration_keys": _CONFIGS} for name in names]
    yield "DESCRIBE_CONFIGS", 4, {"resources": resources}
    for timestamp, isolation_level in ((-2, 0), (-1, 0), (-1, 1), (-3, 0)):
        partitions = [{"partition_index": index, "timestamp": timestamp} for index in _PARTITIONS]
        topics = [{"name": name, "partitions": partitions} for name in names]
        yield "LIST_OFFSETS", 7, {"replica_id": -1, "isolation_level": isolation_level, "topics": topics}
    wanted = [{"partition": index, "fetch_offset": 0, "partition_max_bytes": 1 << 20} for index in _PARTITIONS]
    fetched = [{"topic": name, "partitions": wanted} for name in names]
    yield "FETCH", 12, {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1 << 22, "topics": fetched}
    yield "DESCRIBE_PRODUCERS", 0, {"topics": [{"name": name, "partition_indexes": [0, 1]} for name in names]}


def _of_groups(names: tuple[str, ...]) -> Iterator[_Asked]:
    if not names:
        return
    yield "DESCRIBE_GROUPS", 6, {"groups": list(names)}
    for api in ("CONSUMER_GROUP_DESCRIBE", "SHARE_GROUP_DESCRIBE", "STREAMS_GROUP_DESCRIBE"):
        yield api, 1, {"group_ids": list(names)}
    yield "OFFSET_FETCH", 9, {"groups": [{"group_id": name, "topics": None} for name in names]}
    # After a start it says nothing of groups that are being loaded, and no error: those before wait for that.
    yield "LIST_GROUPS", 5, {}


def _of_transactions(names: tuple[str, ...]) -> Iterator[_Asked]:
    if names:
        yield "DESCRIBE_TRANSACTIONS", 0, {"transactional_ids": list(names)}
