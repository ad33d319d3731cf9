"""The options of `format("ottla")` as a sink: those of Spark's Kafka connector, by the same names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from ottla.kproto.records import Compression
from ottla.pipeline.client import ClientSettings
from ottla.pipeline.client.producer import DEFAULT_BUFFER_BYTES
from ottla.pipeline.errors import OptionError
from ottla.pipeline.options.connection import BOOLEANS, MAX_INT32, connection_settings, refuse_unknown
from ottla.pipeline.options.texts import choice, positive

__all__ = ["SinkOptions", "parse_sink_options"]

DEFAULT_TRANSACTION_TIMEOUT_MS: Final = 900_000
"""Kafka's own transaction.max.timeout.ms: what a broker allows unless it is told otherwise."""

_OPTIONS: Final = ("topic", "transactional", "checkpointLocation", "includeHeaders", "path")
_SETTINGS: Final = (
    "kafka.compression.type",
    "kafka.batch.size",
    "kafka.buffer.memory",
    "kafka.transaction.timeout.ms",
    "kafka.request.timeout.ms",
    "kafka.delivery.timeout.ms",
    "kafka.acks",
    "kafka.enable.idempotence",
)
# They tune what the connector's producer waits for and how often it tries.
_WITHOUT_EFFECT: Final = (
    "kafka.linger.ms",
    "kafka.retries",
    "kafka.retry.backoff.ms",
    "kafka.retry.backoff.max.ms",
    "kafka.max.block.ms",
    "kafka.max.in.flight.requests.per.connection",
    "kafka.max.request.size",
    "kafka.metadata.max.age.ms",
    "kafka.metadata.max.idle.ms",
    "kafka.connections.max.idle.ms",
    "kafka.reconnect.backoff.ms",
    "kafka.reconnect.backoff.max.ms",
    "kafka.send.buffer.bytes",
    "kafka.receive.buffer.bytes",
    "kafka.client.dns.lookup",
    "kafka.enable.metrics.push",
    "kafka.socket.connection.setup.timeout.ms",
    "kafka.socket.connection.setup.timeout.max.ms",
)
_CODECS: Final = {codec.name.lower(): codec for codec in Compression}


class SinkOptions(NamedTuple):
    """What a write was asked for. Without a `topic` the rows name theirs."""

    client: ClientSettings
    topic: str | None = None
    is_transactional: bool = False
    compression: Compression = Compression.NONE
    batch_bytes: int | None = None
    buffer_bytes: int = DEFAULT_BUFFER_BYTES
    transaction_timeout_ms: int = DEFAULT_TRANSACTION_TIMEOUT_MS


def parse_sink_options(options: Mapping[str, str], *, is_stream: bool) -> SinkOptions:
    """Read and check all options; OptionError says which is wrong, and what to write."""
    given = {name.lower(): str(value).strip() for name, value in options.items()}
    refuse_unknown(given, _OPTIONS, (*_SETTINGS, *_WITHOUT_EFFECT))
    if given.get("kafka.acks", "all").lower() not in ("all", "-1"):
        raise OptionError(
            f"Option kafka.acks is {given['kafka.acks']}: leave it out, since the sink waits for all in-sync replicas."
        )
    if not choice(given, "kafka.enable.idempotence", BOOLEANS, "true"):
        raise OptionError(
            "Option kafka.enable.idempotence is false: leave it out, since the sink is always idempotent."
        )
    client = connection_settings(given)
    return SinkOptions(
        client=client._replace(
            request_timeout_ms=positive(given, "kafka.request.timeout.ms", MAX_INT32) or client.request_timeout_ms,
            default_api_timeout_ms=positive(given, "kafka.delivery.timeout.ms", MAX_INT32)
            or client.default_api_timeout_ms,
        ),
        topic=given.get("topic"),
        is_transactional=choice(given, "transactional", BOOLEANS, "true" if is_stream else "false"),
        compression=_codec(given.get("kafka.compression.type", "none")),
        batch_bytes=positive(given, "kafka.batch.size", MAX_INT32),
        buffer_bytes=positive(given, "kafka.buffer.memory") or DEFAULT_BUFFER_BYTES,
        transaction_timeout_ms=positive(given, "kafka.transaction.timeout.ms", MAX_INT32)
        or DEFAULT_TRANSACTION_TIMEOUT_MS,
    )


def _codec(name: str) -> Compression:
    found = _CODECS.get(name.lower())
    if found is None:
        raise OptionError(f"Option kafka.compression.type is {name!r}: write one of {', '.join(_CODECS)}.")
    return found
