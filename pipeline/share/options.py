"""The options of `format("ottla-share")`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from ottla.pipeline.client import ClientSettings
from ottla.pipeline.errors import OptionError
from ottla.pipeline.options.connection import BOOLEANS, MAX_INT32, connection_settings, refuse_unknown
from ottla.pipeline.options.texts import choice, positive

__all__ = ["ShareOptions", "parse_share_options"]

_OPTIONS: Final = (
    "subscribe",
    "maxRecordsPerTrigger",
    "minPartitions",
    "maxRecordsPerPartition",
    "includeHeaders",
    "outcomes",
)
_GROUP: Final = "kafka.group.id"
_NUMBERS: Final = {
    "kafka.fetch.max.bytes": "fetch_max_bytes",
    "kafka.max.partition.fetch.bytes": "max_partition_fetch_bytes",
    "kafka.fetch.max.wait.ms": "fetch_max_wait_ms",
    "kafka.receive.buffer.bytes": "receive_buffer_bytes",
    "kafka.request.timeout.ms": "request_timeout_ms",
    "kafka.default.api.timeout.ms": "default_api_timeout_ms",
}


class ShareOptions(NamedTuple):
    """What a stream of a share group was asked for."""

    client: ClientSettings
    group: str
    topics: tuple[str, ...]
    include_headers: bool = False
    max_records_per_trigger: int | None = None
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    outcomes: str | None = None


def parse_share_options(options: Mapping[str, str]) -> ShareOptions:
    """Read and check all options; OptionError says which is wrong, and what to write."""
    given = {name.lower(): str(value).strip() for name, value in options.items()}
    for name in ("startingOffsets", "kafka.isolation.level", "kafka.auto.offset.reset"):
        if name.lower() in given:
            raise OptionError(
                f"Option {name} is no option of a share group's member: the group's own settings "
                "share.auto.offset.reset and share.isolation.level say it. Leave the option out."
            )
    refuse_unknown(given, _OPTIONS, {*_NUMBERS, _GROUP, "kafka.check.crcs"})
    group = given.get(_GROUP)
    if not group:
        raise OptionError(f"Option {_GROUP} is missing: write .option('{_GROUP}', 'the name of the share group').")
    topics = tuple(dict.fromkeys(filter(None, (name.strip() for name in given.get("subscribe", "").split(",")))))
    if not topics:
        raise OptionError("Option subscribe is missing or empty: write one topic, or several separated by commas.")
    numbers: dict[str, Any] = {
        field: positive(given, name, MAX_INT32) for name, field in _NUMBERS.items() if name in given
    }
    return ShareOptions(
        # What may be read is decided where records are acquired; a task reads exactly those.
        client=connection_settings(given)._replace(
            read_committed=False, check_crcs=choice(given, "kafka.check.crcs", BOOLEANS, "true"), **numbers
        ),
        group=group,
        topics=topics,
        include_headers=choice(given, "includeHeaders", BOOLEANS, "false"),
        max_records_per_trigger=positive(given, "maxRecordsPerTrigger", MAX_INT32),
        min_partitions=positive(given, "minPartitions"),
        max_records_per_partition=positive(given, "maxRecordsPerPartition"),
        outcomes=given.get("outcomes") or None,
    )
