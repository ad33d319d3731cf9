"""Which metrics clients are asked to push, and what they have pushed (KIP-714).

What it promises (Kafka's ClientMetricsManager):

- A client is told what the matching subscriptions ask for: the metrics of all of them, at the shortest interval.
  When they change, its next push is refused, and it asks again.
- It may ask, and push, once an interval. A last push, which says so, may come at any time, and nothing after it.
- A client is forgotten when its connection ends, or after three intervals of silence.

Nothing here runs by itself: silent clients are noticed when another client comes, or when the metrics are read. There
are at most `MAX_CLIENTS`; the one that was heard from longest ago makes room.
"""

from __future__ import annotations

import logging
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID, uuid4

import trio

from ottla.kproto.errors import DecodeError
from ottla.kproto.records.crc import crc32c
from ottla.kproto.records.errors import RecordError
from ottla.metadata.image import ResourceType
from ottla.runtime.client_regex import Pattern
from ottla.runtime.time_slice import TimeSlice
from ottla.server.client_metrics.errors import (
    ClientMetricsError,
    InvalidTelemetryRequestError,
    TelemetryTooEarlyError,
    TelemetryTooLargeError,
    UnknownSubscriptionError,
    UnreadableTelemetryError,
    UnsupportedTelemetryCompressionError,
)
from ottla.server.client_metrics.series import Pushed
from ottla.settings.client_match import matches, parse_match
from ottla.settings.config import CLIENT_METRICS_SETTINGS

if TYPE_CHECKING:
    from ottla.kproto.otlp import DataPoint
    from ottla.metadata.image import MetadataDelta
    from ottla.settings.config import BrokerConfig

logger = logging.getLogger(__name__)

MAX_CLIENTS: Final = 16_384
ALL_METRICS: Final = "*"
LONGEST_INTERVAL_MS: Final = 300_000
LEAST_EXPIRY_MS: Final = 60_000
COMPRESSIONS: Final = (4, 3, 1, 2)
"""The codecs that a client may use, the best first: zstd, lz4, gzip, snappy. 0 (none) is accepted too."""

#: Ids that nobody may have: Uuid.RESERVED of Kafka.
_RESERVED: Final = frozenset({UUID(int=0), UUID(int=1)})


class Subscription(NamedTuple):
    """One `client-metrics` resource."""

    metrics: frozenset[str]
    interval_ms: int
    match: Mapping[str, Pattern]


class Client:
    """A client instance: what it was told, and what it has pushed. Times are Trio's, in milliseconds."""

    __slots__ = (
        "asked_at_ms",
        "attributes",
        "expires_at_ms",
        "has_ended",
        "interval_ms",
        "last_error",
        "metrics",
        "pushed",
        "pushed_at_ms",
        "subscription_id",
        "version",
    )

    def __init__(self, attributes: Mapping[str, str]) -> None:
        self.attributes = attributes
        self.pushed = Pushed()
        self.metrics: frozenset[str] = frozenset()
        self.interval_ms = LONGEST_INTERVAL_MS
        self.subscription_id = 0
        self.version = -1
        self.asked_at_ms = self.pushed_at_ms = float("-inf")
        self.expires_at_ms = float("inf")
        self.has_ended = False
        self.last_error: type[ClientMetricsError] | None = None

    def may_ask(self, now_ms: float) -> bool:
        if now_ms - max(self.asked_at_ms, self.pushed_at_ms) < self.interval_ms:
            return False
        self.asked_at_ms = now_ms
        return True

    def may_push(self, now_ms: float) -> bool:
        if self.asked_at_ms <= self.pushed_at_ms and now_ms - self.pushed_at_ms < self.interval_ms:
            return False
        self.pushed_at_ms = now_ms
        return True


class ClientMetrics:
    """The clients that push metrics to one broker. It owns what is kept of them."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._subscriptions: dict[str, Subscription] = {}
        self._version = 0
        self._clients: OrderedDict[UUID, Client] = OrderedDict()
        self._series = 0
        self.pushes = 0
        self.dropped_series = 0
        self.errors: Counter[type[ClientMetricsError]] = Counter()

    def __len__(self) -> int:
        return len(self._clients)

    async def follow(self, delta: MetadataDelta) -> None:
        """Note a change of the subscriptions."""
        changed = [it for it in delta.changed_configs if it.type is ResourceType.CLIENT_METRICS]
        for resource in changed:
            configs = delta.after.resource_configs(resource)
            if configs:
                self._subscriptions[resource.name] = _subscription(resource.name, configs)
            else:
                self._subscriptions.pop(resource.name, None)
        self._version += bool(changed)

    @property
    def asks(self) -> bool:
        """Whether there is a subscription."""
        return bool(self._subscriptions)

    def clients(self) -> Iterator[Client]:
        """The clients that have pushed recently, with their metrics."""
        now_ms = trio.current_time() * 1000
        for client_id, client in list(self._clients.items()):
            if client.expires_at_ms < now_ms:
                self.forget(client_id, client)
            else:
                yield client

    def ask(self, client_id: UUID, attributes: Mapping[str, str]) -> tuple[UUID, Client]:
        """GetTelemetrySubscriptions: the client's id from now on, and what it should push.

        Raises ClientMetricsError.
        """
        if client_id in _RESERVED:
            client_id = uuid4()
        client = self._find(client_id, attributes)
        asks_anew = client.last_error in (UnknownSubscriptionError, UnsupportedTelemetryCompressionError)
        if not client.may_ask(trio.current_time() * 1000) and not asks_anew:
            raise self._counted(_too_early(client_id))
        client.last_error = None
        return client_id, client

    async def push(
        self,
        client_id: UUID,
        attributes: Mapping[str, str],
        *,
        subscription_id: int,
        is_last: bool,
        compression: int,
        metrics: bytes,
    ) -> Client:
        """PushTelemetry: take a client's metrics. Raises ClientMetricsError."""
        if client_id in _RESERVED:
            message = f"Invalid request from the client [{client_id}], invalid client instance id"
            raise self._counted(InvalidTelemetryRequestError(message))
        client = self._find(client_id, attributes)
        try:
            self._check(client_id, client, subscription_id, is_last, compression, metrics)
            points = await self._read(compression, metrics) if metrics else []
        except ClientMetricsError as error:
            client.last_error = type(error)
            raise self._counted(error) from None
        finally:
            client.has_ended = is_last
        client.last_error = None
        self.pushes += 1
        await self._enter(client_id, client, points)
        return client

    def forget(self, client_id: UUID, client: Client) -> None:
        """The client's connection has ended, or it is silent: what it pushed goes."""
        if self._clients.get(client_id) is client:
            del self._clients[client_id]
            self._series -= len(client.pushed)

    def _find(self, client_id: UUID, attributes: Mapping[str, str]) -> Client:
        client = self._clients.get(client_id)
        if client is None:
            while len(self._clients) >= MAX_CLIENTS:
                self.forget(*next(iter(self._clients.items())))
            client = self._clients[client_id] = Client({**attributes, "client_instance_id": _java_text(client_id)})
        if client.version != self._version:
            self._subscribe(client_id, client)
        self._clients.move_to_end(client_id)
        expiry_ms = max(LEAST_EXPIRY_MS, 3 * client.interval_ms)
        client.expires_at_ms = trio.current_time() * 1000 + expiry_ms
        return client

    def _subscribe(self, client_id: UUID, client: Client) -> None:
        matching = [it for it in self._subscriptions.values() if matches(it.match, client.attributes)]
        wanted = frozenset().union(*(it.metrics for it in matching))
        client.metrics = frozenset({ALL_METRICS}) if ALL_METRICS in wanted else wanted
        client.interval_ms = min([LONGEST_INTERVAL_MS, *(it.interval_ms for it in matching)])
        client.version = self._version
        # As in Kafka, what is subscribed to again begins as if nothing had been asked or pushed yet.
        client.asked_at_ms = client.pushed_at_ms = float("-inf")
        client.has_ended, client.last_error = False, None
        subscription = f"{sorted(client.metrics)}{client.interval_ms}".encode()
        number = crc32c(subscription, 0, len(subscription)) ^ (hash(client_id.int) & 0xFFFF_FFFF)
        client.subscription_id = number - (1 << 32) if number >= 1 << 31 else number

    def _check(
        self, client_id: UUID, client: Client, subscription_id: int, is_last: bool, compression: int, metrics: bytes
    ) -> None:
        """Refuse what ClientMetricsManager.validatePushRequest refuses, in its order and words."""
        if client.has_ended:
            raise InvalidTelemetryRequestError(
                f"Client [{client_id}] sent the previous request with state terminating to TRUE, can not accept"
                "any requests after that"
            )
        if not client.may_push(trio.current_time() * 1000) and not is_last:
            raise _too_early(client_id)
        if subscription_id != client.subscription_id:
            raise UnknownSubscriptionError(f"Unknown client subscription id for the client [{client_id}]")
        if compression not in (0, *COMPRESSIONS):
            raise UnsupportedTelemetryCompressionError(
                f"Unknown compression type [{compression}] is received in telemetry request from [{client_id}]"
            )
        limit_bytes = self._config.telemetry_max_bytes
        if len(metrics) > limit_bytes:
            raise TelemetryTooLargeError(
                f"Telemetry request from [{client_id}] is larger than the maximum allowed size [{limit_bytes}]"
            )

    async def _read(self, compression: int, metrics: bytes) -> list[DataPoint]:
        read = partial(
            _read,
            compression,
            bytes(metrics),
            self._config.telemetry_max_bytes,
            self._config.ottla_metrics_max_client_series,
        )
        try:
            return await trio.to_thread.run_sync(read)
        except (DecodeError, RecordError) as error:
            raise UnreadableTelemetryError(str(error)) from error

    async def _enter(self, client_id: UUID, client: Client, points: Iterable[DataPoint]) -> None:
        """Keep what was pushed, as long as the client is there: it may go while its metrics are read or entered."""
        time_slice = TimeSlice()
        for point in points:
            await time_slice.maybe_yield()
            if self._clients.get(client_id) is not client:
                return
            self.dropped_series += client.pushed.take((point,), self._take_room)

    def _take_room(self) -> bool:
        if self._series >= self._config.ottla_metrics_max_client_series:
            return False
        self._series += 1
        return True

    def _counted(self, error: ClientMetricsError) -> ClientMetricsError:
        self.errors[type(error)] += 1
        return error


def _subscription(name: str, configs: Mapping[str, str]) -> Subscription:
    wanted = {key: setting.parse(configs[key]) for key, setting in CLIENT_METRICS_SETTINGS.items() if key in configs}
    match: Mapping[str, Pattern]
    try:
        match = parse_match(wanted.get("match", ()))
    except ValueError as error:
        # It was accepted when it was set, by a broker that knew other patterns.
        logger.warning("client metrics %s match nobody: illegal pattern %s", name, error, extra={"error": str(error)})
        match = {"client_id": _Nobody()}
    return Subscription(frozenset(wanted.get("metrics", ())), wanted.get("interval.ms", LONGEST_INTERVAL_MS), match)


class _Nobody:
    def fullmatch(self, text: str) -> None:
        return None


def _read(compression: int, metrics: bytes, limit_bytes: int, max_points: int) -> list[DataPoint]:
    from ottla.kproto import otlp
    from ottla.kproto.records.compression import decompress
    from ottla.kproto.records.types import Compression

    return otlp.metrics(decompress(Compression(compression), metrics, limit_bytes), max_points)


def _too_early(client_id: UUID) -> TelemetryTooEarlyError:
    return TelemetryTooEarlyError(
        f"Request from the client [{_java_text(client_id)}] arrived before the next push interval time"
    )


def _java_text(value: UUID) -> str:
    """An id as Kafka writes it: URL-safe base64."""
    from base64 import urlsafe_b64encode

    return urlsafe_b64encode(value.bytes).decode().rstrip("=")
