"""The options of `format("ottla")`: those of Spark's Kafka connector, by the same names.

Names are compared without case, as Spark does. An option that is not known, or does nothing here, is refused with a
sentence, so that a typing error never silently reads something else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from ottla.pipeline.client import EARLIEST, LATEST, ClientSettings, TopicPartition, parse_bootstrap_servers
from ottla.pipeline.errors import OptionError

__all__ = ["Offsets", "SourceOptions", "Subscription", "parse_options", "parse_positions"]

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
_BOOLEANS: Final = {"true": True, "false": False}
_DURATION: Final = re.compile(r"(\d+)\s*(ms|s|m|min|h|d)")
_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_MAX_INT32: Final = (1 << 31) - 1

Offsets = dict[TopicPartition, int]


class Subscription(NamedTuple):
    """Which partitions are read; exactly one of the three is set."""

    topics: tuple[str, ...] = ()
    pattern: str = ""
    assigned: tuple[TopicPartition, ...] = ()

    def includes(self, topic: str) -> bool:
        """Say whether a topic of that name can be in the subscription."""
        if self.pattern:
            return re.fullmatch(self.pattern, topic) is not None
        return topic in self.topics or any(part.topic == topic for part in self.assigned)

    def __str__(self) -> str:
        return ", ".join(self.topics) or self.pattern or ", ".join(map(str, self.assigned))


class Positions(NamedTuple):
    """Where to begin, or to end, as the options say it.

    `offsets` are exact ones, or `EARLIEST` and `LATEST`, by partition; `timestamps_ms` are times by partition;
    `everywhere` and `everywhere_ms` hold for all partitions. Times count before offsets.
    """

    everywhere: int = LATEST
    everywhere_ms: int | None = None
    timestamps_ms: Offsets | None = None
    offsets: Offsets | None = None


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
    _refuse_unknown(given)
    if is_stream:
        for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"):
            if name.lower() in given:
                raise OptionError(f"Option {name} is for batch reads: a stream has no end. Leave it out.")
    starting = _positions(given, "starting", LATEST if is_stream else EARLIEST)
    ending = _positions(given, "ending", LATEST)
    if not is_stream:
        _refuse_empty_batch(starting, ending)
    return SourceOptions(
        client=_client_settings(given),
        subscription=_subscription(given),
        starting=starting,
        ending=ending,
        latest_if_no_timestamp=_choice(
            given, "startingOffsetsByTimestampStrategy", {"error": False, "latest": True}, "error"
        ),
        fail_on_data_loss=_choice(given, "failOnDataLoss", _BOOLEANS, "true"),
        include_headers=_choice(given, "includeHeaders", _BOOLEANS, "false"),
        max_offsets_per_trigger=_positive(given, "maxOffsetsPerTrigger"),
        min_offsets_per_trigger=_positive(given, "minOffsetsPerTrigger"),
        max_trigger_delay_ms=_duration_ms(given, "maxTriggerDelay", "15m"),
        min_partitions=_positive(given, "minPartitions"),
        max_records_per_partition=_positive(given, "maxRecordsPerPartition"),
    )


def _refuse_unknown(given: Mapping[str, str]) -> None:
    known = {name.lower() for name in _OPTIONS} | _WITHOUT_EFFECT | set(_NUMBERS)
    known |= {"kafka.bootstrap.servers", "kafka.isolation.level", "kafka.client.id", "kafka.check.crcs"}
    known.add("kafka.security.protocol")
    if given.get("kafka.security.protocol", "PLAINTEXT").upper() != "PLAINTEXT":
        raise OptionError(
            f"kafka.security.protocol={given['kafka.security.protocol']} is not supported by format('ottla'), which "
            "connects in plain text only: use format('kafka') for this broker, or a listener without encryption."
        )
    for name in sorted(given.keys() - known):
        if name.startswith(("kafka.sasl.", "kafka.ssl.", "kafka.security.")):
            raise OptionError(
                f"Option {name} is not supported by format('ottla'), which connects in plain text only: use "
                "format('kafka') for this broker, or a listener without encryption and authentication."
            )
        if name.startswith("kafka."):
            raise OptionError(f"Option {name} has no meaning for format('ottla'): leave it out.")
        raise OptionError(f"There is no option {name}. There are kafka.bootstrap.servers, {', '.join(_OPTIONS)}.")


def _client_settings(given: Mapping[str, str]) -> ClientSettings:
    servers = given.get("kafka.bootstrap.servers")
    if servers is None:
        raise OptionError(
            "Option kafka.bootstrap.servers is missing: write .option('kafka.bootstrap.servers', 'host:port')."
        )
    numbers: dict[str, Any] = {field: _positive(given, name) for name, field in _NUMBERS.items() if name in given}
    return ClientSettings(parse_bootstrap_servers(servers))._replace(
        client_id=given.get("kafka.client.id", "ottla-spark"),
        read_committed=_choice(given, "kafka.isolation.level", _ISOLATION_LEVELS, "read_uncommitted"),
        check_crcs=_choice(given, "kafka.check.crcs", _BOOLEANS, "true"),
        **numbers,
    )


def _subscription(given: Mapping[str, str]) -> Subscription:
    chosen = [name for name in ("subscribe", "subscribePattern", "assign") if name.lower() in given]
    if len(chosen) != 1:
        what = " and ".join(chosen) or "none of them"
        raise OptionError(f"One of subscribe, subscribePattern and assign says what is read, but there is {what}.")
    name = chosen[0]
    text = given[name.lower()]
    if name == "subscribe":
        topics = tuple(dict.fromkeys(filter(None, (topic.strip() for topic in text.split(",")))))
        if not topics:
            raise OptionError("Option subscribe is empty: write one topic, or several separated by commas.")
        return Subscription(topics=topics)
    if name == "subscribePattern":
        try:
            re.compile(text)
        except re.error as error:
            raise OptionError(f"Option subscribePattern is no regular expression: {error}.") from None
        if not text:
            raise OptionError("Option subscribePattern is empty: write a regular expression.")
        return Subscription(pattern=text)
    assigned = []
    example = '{"topic":[0,1]}'
    for topic, numbers in _json_object(name, text, example).items():
        if not isinstance(numbers, list) or not all(_is_int(number) and number >= 0 for number in numbers):
            raise OptionError(f"Option {name} has {topic!r}: {numbers!r}; write {example}.")
        assigned += [TopicPartition(topic, number) for number in numbers]
    if not assigned:
        raise OptionError(f"Option {name} names no partition: write {example}.")
    return Subscription(assigned=tuple(dict.fromkeys(assigned)))


def _positions(given: Mapping[str, str], which: str, default: int) -> Positions:
    everywhere_ms = None
    timestamps_ms = None
    if (text := given.get(f"{which}timestamp")) is not None:
        everywhere_ms = _number(f"{which}Timestamp", text)
        if everywhere_ms < 0:
            raise OptionError(f"Option {which}Timestamp is {text}: write milliseconds since 1970.")
    if (text := given.get(f"{which}offsetsbytimestamp")) is not None:
        timestamps_ms = parse_positions(f"{which}OffsetsByTimestamp", text, least=0)
    text = given.get(f"{which}offsets")
    if text is None:
        return Positions(default, everywhere_ms, timestamps_ms)
    ends = {"earliest": EARLIEST, "latest": LATEST}
    if text.lower() in ends:
        return Positions(ends[text.lower()], everywhere_ms, timestamps_ms)
    return Positions(default, everywhere_ms, timestamps_ms, parse_positions(f"{which}Offsets", text, least=EARLIEST))


def parse_positions(name: str, text: str, *, least: int) -> Offsets:
    """Read Spark's JSON of numbers by partition, `{"topic":{"0":23,"1":-2}}`."""
    example = '{"topic":{"0":23,"1":42}}' + ("" if least >= 0 else ", -2 for the earliest and -1 for the latest offset")
    found = {}
    for topic, parts in _json_object(name, text, example).items():
        if not isinstance(parts, dict):
            raise OptionError(f"Option {name} has {topic!r}: {parts!r}; write {example}.")
        for partition, number in parts.items():
            if not (partition.isascii() and partition.isdigit() and _is_int(number) and number >= least):
                raise OptionError(f"Option {name} has {partition!r}: {number!r} for topic {topic!r}; write {example}.")
            found[TopicPartition(topic, int(partition))] = number
    return found


def _refuse_empty_batch(starting: Positions, ending: Positions) -> None:
    if LATEST in _ends_of(starting):
        raise OptionError("A batch read cannot start at the latest offset, where nothing is: change startingOffsets.")
    if EARLIEST in _ends_of(ending):
        raise OptionError("A batch read cannot end at the earliest offset, before all records: change endingOffsets.")


def _ends_of(positions: Positions) -> Iterable[int]:
    if positions.everywhere_ms is not None or positions.timestamps_ms is not None:
        return ()
    return (positions.everywhere,) if positions.offsets is None else positions.offsets.values()


def _json_object(name: str, text: str, example: str) -> dict[str, object]:
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise OptionError(f"Option {name} is not JSON ({error}): write {example}.") from None
    if not isinstance(found, dict):
        raise OptionError(f"Option {name} is {text}: write {example}.")
    return found


def _choice(given: Mapping[str, str], name: str, choices: Mapping[str, bool], default: str) -> bool:
    text = given.get(name.lower(), default)
    found = choices.get(text.lower())
    if found is None:
        raise OptionError(f"Option {name} is {text!r}: write one of {', '.join(choices)}.")
    return found


def _positive(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name.lower())
    if text is None:
        return None
    number = _number(name, text)
    if number <= 0:
        raise OptionError(f"Option {name} is {text}: write a number above 0.")
    if name in _NUMBERS and number > _MAX_INT32:
        raise OptionError(f"Option {name} is {text}: write a number of at most {_MAX_INT32}.")
    return number


def _number(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise OptionError(f"Option {name} is {text!r}: write a whole number.") from None


def _duration_ms(given: Mapping[str, str], name: str, default: str) -> int:
    text = given.get(name.lower(), default)
    found = _DURATION.fullmatch(text.lower())
    if found is None:
        raise OptionError(f"Option {name} is {text!r}: write a number and ms, s, m, h or d, such as 15m.")
    return int(found[1]) * _UNITS_MS[found[2]]


def _is_int(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool)
