"""The APIs that this broker serves: their versions, what parses, handles and builds them, and what they have cost.

A handler is a module `ottla.server.apis.<api>` that is known here by its name alone and loaded, as the codec is, when
the API is first called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import trio

from ottla.kproto import codec
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.releases import latest_versions
from ottla.server.errors import CloseConnectionError
from ottla.server.served.metrics import ApiMetrics

if TYPE_CHECKING:
    from ottla.kproto.codec import Buffer
    from ottla.kproto.schema import Request, Response

Handler = Callable[[Any, Any], Any]
"""From a request and its context (`ottla.server.apis.context`) to its answer (`ottla.server.apis.pending`).

It touches no task: it may be called by whoever receives for all connections.
"""

SERVED: Final = (
    ApiKey.PRODUCE,
    ApiKey.FETCH,
    ApiKey.LIST_OFFSETS,
    ApiKey.METADATA,
    ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH,
    ApiKey.FIND_COORDINATOR,
    ApiKey.JOIN_GROUP,
    ApiKey.HEARTBEAT,
    ApiKey.LEAVE_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.DESCRIBE_GROUPS,
    ApiKey.LIST_GROUPS,
    ApiKey.SASL_HANDSHAKE,
    ApiKey.API_VERSIONS,
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.DELETE_RECORDS,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.END_TXN,
    ApiKey.WRITE_TXN_MARKERS,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.DESCRIBE_PRODUCERS,
    ApiKey.DESCRIBE_TRANSACTIONS,
    ApiKey.LIST_TRANSACTIONS,
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
    ApiKey.DESCRIBE_ACLS,
    ApiKey.CREATE_ACLS,
    ApiKey.DELETE_ACLS,
    ApiKey.CREATE_DELEGATION_TOKEN,
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_CONFIGS,
    ApiKey.ALTER_CONFIGS,
    ApiKey.ALTER_REPLICA_LOG_DIRS,
    ApiKey.DESCRIBE_LOG_DIRS,
    ApiKey.SASL_AUTHENTICATE,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.DELETE_GROUPS,
    ApiKey.ELECT_LEADERS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    ApiKey.OFFSET_DELETE,
    ApiKey.DESCRIBE_CLIENT_QUOTAS,
    ApiKey.ALTER_CLIENT_QUOTAS,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    ApiKey.DESCRIBE_QUORUM,
    ApiKey.UPDATE_FEATURES,
    ApiKey.DESCRIBE_CLUSTER,
    ApiKey.CONSUMER_GROUP_HEARTBEAT,
    ApiKey.CONSUMER_GROUP_DESCRIBE,
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
    ApiKey.PUSH_TELEMETRY,
    ApiKey.UNREGISTER_BROKER,
    ApiKey.LIST_CONFIG_RESOURCES,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    ApiKey.SHARE_GROUP_HEARTBEAT,
    ApiKey.SHARE_GROUP_DESCRIBE,
    ApiKey.SHARE_FETCH,
    ApiKey.SHARE_ACKNOWLEDGE,
    ApiKey.ADD_RAFT_VOTER,
    ApiKey.REMOVE_RAFT_VOTER,
    ApiKey.INITIALIZE_SHARE_GROUP_STATE,
    ApiKey.READ_SHARE_GROUP_STATE,
    ApiKey.WRITE_SHARE_GROUP_STATE,
    ApiKey.DELETE_SHARE_GROUP_STATE,
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
    ApiKey.STREAMS_GROUP_HEARTBEAT,
    ApiKey.STREAMS_GROUP_DESCRIBE,
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS,
    ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE,
    ApiKey.UNREGISTER_CONTROLLER,
)
"""Every API that has a handler module; nothing else is advertised."""

TELEMETRY: Final = frozenset({ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY})
"""What is served only where the broker has an HTTP port: without `/metrics` nobody could read what clients push. Kafka
does not advertise them either unless it has a plugin that takes the metrics."""

PIPELINED: Final = frozenset({ApiKey.PRODUCE, ApiKey.OFFSET_COMMIT})
"""What a connection may have several of under way (see `ottla.server.network.connection`)."""


WAITING: Final = PIPELINED | {
    ApiKey.FETCH,
    ApiKey.SHARE_FETCH,
    ApiKey.JOIN_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.DELETE_RECORDS,
}
"""Whose answers may have to wait for others."""

FORWARDED: Final = frozenset(
    {
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.CREATE_ACLS,
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_ACLS,
        ApiKey.DELETE_TOPICS,
        ApiKey.ELECT_LEADERS,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.UNREGISTER_BROKER,
        ApiKey.UNREGISTER_CONTROLLER,
        ApiKey.UPDATE_FEATURES,
    }
)
"""What brokers of Kafka forward to the controller: answered by what is committed (`ottla.server.apis.forwarded`)."""


_GROUPS: Final = (
    "ottla.server.coordinator.group.coordinator",
    "ottla.server.coordinator.group.topics",
    "ottla.server.coordinator.settings",
)
_TRANSACTIONS: Final = (
    "ottla.server.coordinator.transaction.coordinator",
    "ottla.server.coordinator.transaction.markers",
    "ottla.server.coordinator.transaction.other_brokers",
    "ottla.server.coordinator.settings",
)
_SHARE: Final = (
    "ottla.server.apis.other_share_coordinators",
    "ottla.server.coordinator.share.coordinator",
    "ottla.server.coordinator.share.cluster",
    "ottla.server.coordinator.share.topics",
    "ottla.server.share.config",
    "ottla.server.share.dead_letters",
    "ottla.server.share.manager",
)
_CONTROLLER: Final = (
    "ottla.server.metadata.access_transactions",
    "ottla.server.metadata.broker_transactions",
    "ottla.server.metadata.config_transactions",
    "ottla.server.metadata.partition_transactions",
    "ottla.server.metadata.topic_transactions",
)


def _imported_later(key: ApiKey) -> Iterator[str]:
    """The modules that its first request would import on the event loop."""
    name = key.name
    if "GROUP" in name or "TXN" in name or "TRANSACTION" in name or name.startswith(("OFFSET", "HEARTBEAT", "INIT_")):
        yield from (*_GROUPS, *_TRANSACTIONS)
    if "SHARE" in name:
        yield from (*_GROUPS, *_SHARE)
    if key in FORWARDED:
        yield from _CONTROLLER


class Api:
    """One served API: its versions, and its handler and codec once it was called."""

    __slots__ = (
        "_handler",
        "advertised_min_version",
        "build_in_steps",
        "build_parts",
        "handler",
        "is_pipelined",
        "key",
        "lets_frame_go",
        "max_version",
        "may_wait",
        "metrics",
        "min_version",
        "parse",
        "parse_in_steps",
        "parse_lone",
        "prepared_versions",
        "tagged_from_version",
        "versions_in_steps",
    )

    def __init__(
        self, key: ApiKey, handler: Callable[[Any, Any], Any] | None = None, *, at_most: int | None = None
    ) -> None:
        self.key = key
        self.min_version, self.max_version = key.valid_versions
        if at_most is not None:
            self.max_version = min(self.max_version, at_most)
        # Older librdkafka turns compression off unless Produce 0 is advertised (KAFKA-18659); it is never served.
        self.advertised_min_version = 0 if key is ApiKey.PRODUCE else self.min_version
        self.is_pipelined = key in PIPELINED
        #: Whether others may be waited for as long as the request says.
        self.may_wait = key in WAITING
        self.lets_frame_go = self.may_wait and key is not ApiKey.PRODUCE
        #: The first version whose responses have a header with tagged fields; one that does not exist if none has.
        is_tagged = key.response_header_version(self.max_version) == 1
        self.tagged_from_version = key.flexible_versions.lowest if is_tagged else self.max_version + 1
        self.prepared_versions: set[int] = set()
        self.versions_in_steps: set[int] = set()
        #: What its requests cost; None until the first one.
        self.metrics: ApiMetrics | None = None
        self._handler = handler
        self.handler: Handler
        self.parse: Callable[[int, codec.Buffer, int], Request]
        self.build_parts: Callable[[Any, int], list[Buffer]]
        #: Parses a request that has few elements though it is large; None if it has more, or is not to be parsed.
        self.parse_lone: Callable[[int, codec.Buffer, int], Request | None]
        self.parse_in_steps: Callable[[int, codec.Buffer, int, codec.Begun], codec.Steps[Request]]
        self.build_in_steps: Callable[[Any, int], codec.Steps[list[Buffer]]]

    def __repr__(self) -> str:
        return f"{self.key.name} {self.min_version}-{self.max_version}"

    async def prepare(self, version: int) -> None:
        """Make ready for the first request of a version.

        Imports and compilation take some ten milliseconds, for which a worker thread holds up nobody else.
        """
        await trio.to_thread.run_sync(self.load, version)
        self.prepared_versions.add(version)

    async def prepare_steps(self, version: int) -> None:
        """`prepare` for the first large request of a version."""
        await trio.to_thread.run_sync(codec.prepare_steps, self.key, version)
        self.versions_in_steps.add(version)

    def load(self, version: int) -> None:
        """Import what serving this API needs; three have codecs of their own for what they carry."""
        codec.prepare(self.key, version)
        if self.metrics is None:
            self.metrics = ApiMetrics(self.key)
        self.parse = partial(codec.parse_request, self.key)
        self.parse_lone = _no_request
        self.parse_in_steps = partial(codec.parse_request_in_steps, self.key)
        self.build_parts = _build_whole
        self.build_in_steps = codec.build_in_steps  # type: ignore[assignment]  # bytes are buffers
        if self.key is ApiKey.PRODUCE:
            from ottla.kproto.hot import produce

            self.parse = produce.parse_request
            self.parse_lone = produce.parse_lone_request
            self.parse_in_steps = produce.parse_request_in_steps
            self.build_parts = produce.build_parts
        elif self.key is ApiKey.FETCH:
            from ottla.kproto.hot import fetch

            self.build_parts = fetch.build_parts
            self.build_in_steps = fetch.build_in_steps
        elif self.key is ApiKey.METADATA:
            from ottla.kproto.hot import metadata

            self.build_parts = metadata.build_parts
            self.build_in_steps = metadata.build_in_steps
        if self._handler is None:
            handle = import_module(f"ottla.server.apis.{self.key.name.lower()}").handle
            if self.key in FORWARDED:
                handle = import_module("ottla.server.apis.forwarded").answered_up_to_date(handle)
            self._handler = handle
        self.handler = import_module("ottla.server.apis.pending").handler_of(self._handler)
        for name in _imported_later(self.key):
            import_module(name)


def _no_request(_version: int, _buf: codec.Buffer, _pos: int) -> None:
    return None


class ApiTable:
    """The APIs that this broker serves, by number."""

    __slots__ = ("_apis",)

    def __init__(self, apis: Iterable[Api]) -> None:
        self._apis = {int(api.key): api for api in sorted(apis, key=lambda api: api.key)}

    @classmethod
    def default(cls, *, takes_telemetry: bool = True, release: str | None = None) -> ApiTable:
        """Everything that is served; without a place for what clients push, all but `TELEMETRY`; of what an earlier
        release of Kafka serves, no more than that.
        """
        keys = [key for key in SERVED if takes_telemetry or key not in TELEMETRY]
        if release is None:
            return cls(map(Api, keys))
        latest = latest_versions(release)
        # An API of which that release serves only versions that Kafka 4 has removed is left out.
        return cls(Api(key, at_most=latest[key]) for key in keys if latest.get(key, -1) >= key.valid_versions[0])

    def __iter__(self) -> Iterator[Api]:
        return iter(self._apis.values())

    def find(self, api_key: int, api_version: int) -> Api:
        """The API of a request, CloseConnectionError if Kafka would close the connection over it."""
        api = self._apis.get(api_key)
        if api is None:
            raise CloseConnectionError(_why_not(api_key))
        if not api.min_version <= api_version <= api.max_version and api.key is not ApiKey.API_VERSIONS:
            raise CloseConnectionError(f"version {api_version} of {api} is not served")
        return api


def _why_not(api_key: int) -> str:
    from ottla.server.served.not_served import NOT_SERVED

    reasons = {int(key): f"API key {api_key} ({key.name}) is not served: {why}" for key, why in NOT_SERVED.items()}
    return reasons.get(api_key, f"API key {api_key} is not served")


def _build_whole(response: Response, version: int) -> list[Buffer]:
    # One send of many small pieces costs more than joining them.
    return [codec.build(response, version)]
