"""The options of `format("ottla")`: those of Spark's Kafka connector, by the same names.

Names are compared without case, as Spark does. An option that is not known, or does nothing here, is refused with a
sentence, so that a typing error never silently reads something else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from ottla.pipeline.client import EARLIEST, LATEST, ClientSettings
from ottla.pipeline.errors import OptionError
from ottla.pipeline.options.connection import BOOLEANS, MAX_INT32, connection_settings, refuse_unknown
from ottla.pipeline.options.texts import choice, duration_ms, positive
from ottla.pipeline.source.positions import Positions, positions_of, refuse_empty_batch
from ottla.pipeline.source.subscription import Subscription, subscription_of

__all__ = ["SourceOptions", "parse_options"]

_OPTIONS: Final = (
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "failOnDataLoss",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "includeHeaders",
)
# They tune how the connector waits and caches, or name a group that no read without groups needs.
_WITHOUT_EFFECT: Final = frozenset(
    {
        "kafkaconsumer.polltimeoutms",
        "fetchoffset.numretries",
        "fetchoffset.retryintervalms",
        "groupidprefix",
        "path",
        "kafka.group.id",
        "kafka.max.poll.records",
        "kafka.max.poll.interval.ms",
        "kafka.session.timeout.ms",
        "kafka.heartbeat.interval.ms",
        "kafka.metadata.max.age.ms",
        "kafka.reconnect.backoff.ms",
        "kafka.reconnect.backoff.max.ms",
        "kafka.retry.backoff.ms",
        "kafka.retry.backoff.max.ms",
        "kafka.connections.max.idle.ms",
        "kafka.send.buffer.bytes",
        "kafka.allow.auto.create.topics",
        "kafka.client.dns.lookup",
        "kafka.enable.metrics.push",
        "kafka.socket.connection.setup.timeout.ms",
        "kafka.socket.connection.setup.timeout.max.ms",
    }
)
_NUMBERS: Final = {
    "kafka.fetch.max.bytes": "fetch_max_bytes",
    "kafka.max.partition.fetch.bytes": "max_partition_fetch_bytes",
    "kafka.fetch.min.bytes": "fetch_min_bytes",
    "kafka.fetch.max.wait.ms": "fetch_max_wait_ms",
    "kafka.receive.buffer.bytes": "receive_buffer_bytes",
    "kafka.request.timeout.ms": "request_timeout_ms",
    "kafka.default.api.timeout.ms": "default_api_timeout_ms",
}
_ISOLATION_LEVELS: Final = {"read_uncommitted": False, "read_committed": True}


class SourceOptions(NamedTuple):
    """What a read was asked for."""

    client: ClientSettings
    subscription: Subscription
    starting: Positions
    ending: Positions
    latest_if_no_timestamp: bool
    fail_on_data_loss: bool
    include_headers: bool
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    min_partitions: int | None
    max_records_per_partition: int | None


def parse_options(options: Mapping[str, str], *, is_stream: bool) -> SourceOptions:
    """Read and check all options; OptionError says which is wrong, and what to write."""
    given = {name.lower(): str(value).strip() for name, value in options.items()}
    refuse_unknown(given, _OPTIONS, {*_WITHOUT_EFFECT, *_NUMBERS, "kafka.isolation.level", "kafka.check.crcs"})
    if is_stream:
        for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"):
            if name.lower() in given:
                raise OptionError(f"Option {name} is for batch reads: a stream has no end. Leave it out.")
    starting = positions_of(given, "starting", LATEST if is_stream else EARLIEST)
    ending = positions_of(given, "ending", LATEST)
    if not is_stream:
        refuse_empty_batch(starting, ending)
    return SourceOptions(
        client=_client_settings(given),
        subscription=subscription_of(given),
        starting=starting,
        ending=ending,
        latest_if_no_timestamp=choice(
            given, "startingOffsetsByTimestampStrategy", {"error": False, "latest": True}, "error"
        ),
        fail_on_data_loss=choice(given, "failOnDataLoss", BOOLEANS, "true"),
        include_headers=choice(given, "includeHeaders", BOOLEANS, "false"),
        max_offsets_per_trigger=positive(given, "maxOffsetsPerTrigger"),
        min_offsets_per_trigger=positive(given, "minOffsetsPerTrigger"),
        max_trigger_delay_ms=duration_ms(given, "maxTriggerDelay", "15m"),
        min_partitions=positive(given, "minPartitions"),
        max_records_per_partition=positive(given, "maxRecordsPerPartition"),
    )


def _client_settings(given: Mapping[str, str]) -> ClientSettings:
    numbers: dict[str, Any] = {
        field: positive(given, name, MAX_INT32) for name, field in _NUMBERS.items() if name in given
    }
    return connection_settings(given)._replace(
        read_committed=choice(given, "kafka.isolation.level", _ISOLATION_LEVELS, "read_uncommitted"),
        check_crcs=choice(given, "kafka.check.crcs", BOOLEANS, "true"),
        **numbers,
    )
