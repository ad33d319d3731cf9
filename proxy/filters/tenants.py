"""Tenants: many teams on one cluster, each in a world of its own.

    [[filter]]
    type = "tenants"
    prefix = "team-a."                      # for all clients of this proxy; or
    by-address = { "10.1.0.0/16" = "team-a.", "10.2.0.0/16" = "team-b." }   # or
    by-principal = { "User:alice" = "team-a.", "User:bob" = "team-b." }

What a client calls `orders` is `team-a.orders` upstream: topics, groups and transactional ids, in every message that
names one. Lists leave out what does not begin with the client's prefix, so names of other tenants and internal topics
are never seen. APIs that concern the cluster as a whole, or ids alone, are not offered.

The topics in subscriptions and assignments of the classic protocol are renamed, too. What assignors add for themselves
holds the members' own names.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from enum import Enum, auto
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.kproto.schema import StructType
from ottla.proxy.filters.filter import Filter, RefusedByFilterError
from ottla.proxy.filters.group_protocol import rename_in_request, rename_in_response
from ottla.proxy.filters.prefixed_patterns import UnclearError, prefixed
from ottla.runtime.client_regex import ClientRegexError, compile_client_regex

if TYPE_CHECKING:
    from ottla.kproto.schema import Request, Response, Struct
    from ottla.proxy.filters.filter import Call, Client

OFFERED: Final = frozenset(
    {
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
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.DELETE_RECORDS,
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.END_TXN,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.DESCRIBE_LOG_DIRS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.DELETE_GROUPS,
        ApiKey.ELECT_LEADERS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.OFFSET_DELETE,
        ApiKey.DESCRIBE_PRODUCERS,
        ApiKey.DESCRIBE_TRANSACTIONS,
        ApiKey.LIST_TRANSACTIONS,
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        ApiKey.CONSUMER_GROUP_DESCRIBE,
    }
)
"""The APIs that tenants may call; each of these messages was searched for names."""

_WITHOUT_NAMES: Final = frozenset(
    {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, ApiKey.DESCRIBE_CLUSTER}
)

_NAME_FIELDS: Final = frozenset(
    {"topic", "topic_name", "group_id", "transactional_id", "v3_and_below_transactional_id"}
)
_NAMES_FIELDS: Final = frozenset(
    {
        "topic_names",
        "subscribed_topic_names",
        "groups",
        "groups_names",
        "group_ids",
        "transactional_ids",
        "coordinator_keys",
    }
)
_KEY_STRUCTS: Final = frozenset({"FindCoordinatorRequest", "Coordinator"})
_PATTERN_FIELDS: Final = frozenset({"subscribed_topic_regex", "transactional_id_pattern"})
_MESSAGE: Final = "error_message"
_RESOURCE: Final = "resource_name"
_TOPIC_RESOURCES: Final = frozenset({2, 32})  # topics and groups
_READABLE_RESOURCES: Final = frozenset({4, 8})  # brokers, and their loggers
_EXAMPLES: Final = {"by-address": "10.1.0.0/16", "by-principal": "User:alice"}
_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]{1,100}")


class Kind(Enum):
    """The kind of name in a field."""

    NAME = auto()
    NAMES = auto()
    PATTERN = auto()
    MESSAGE = auto()
    RESOURCE = auto()
    STRUCT = auto()
    STRUCTS = auto()


def _check_prefixes(prefixes: Sequence[Any]) -> None:
    """Raises ValueError for an invalid prefix, and for one that begins with another one: these tenants would see each
    other.
    """
    for one in prefixes:
        if not isinstance(one, str) or not _LEGAL.fullmatch(one):
            raise ValueError(f"{one!r} is not a prefix: write up to 100 letters, digits, dots, hyphens and underscores")
    for one in set(prefixes):
        other = next((it for it in set(prefixes) if it != one and it.startswith(one)), None)
        if other is not None:
            raise ValueError(f"the tenant {one!r} would see what belongs to {other!r}: end prefixes with a dot")


class Tenants(Filter):
    """Puts a tenant's prefix before its names, and takes it away again."""

    NEEDS_TOPIC_NAMES = True

    def __init__(
        self,
        *,
        prefix: str = "",
        by_address: Mapping[str, str] | None = None,
        by_principal: Mapping[str, str] | None = None,
    ) -> None:
        if sum(map(bool, (prefix, by_address, by_principal))) != 1:
            raise ValueError("write one of prefix, by-address and by-principal")
        for name, table in (("by-address", by_address or {}), ("by-principal", by_principal or {})):
            if not isinstance(table, Mapping):
                raise TypeError(f'{name}: write it as a table, {{ "{_EXAMPLES[name]}" = "team-a." }}')
        self._prefix = prefix
        self._by_network = [(_network(text), given) for text, given in (by_address or {}).items()]
        self._by_principal = dict(by_principal or {})
        nobody = next((name for name in self._by_principal if ":" not in name), None)
        if nobody is not None:
            raise ValueError(f"by-principal: {nobody!r} is not a principal: write User:{nobody}")
        _check_prefixes([prefix] if prefix else [*(by_address or {}).values(), *self._by_principal.values()])

    def requests(self) -> frozenset[ApiKey]:
        return OFFERED

    def responses(self) -> frozenset[ApiKey]:
        return OFFERED

    def offers(self, key: ApiKey) -> bool:
        return key in OFFERED or key in _WITHOUT_NAMES

    def for_client(self, client: Client) -> Filter:
        if self._prefix:
            return self
        found = self._by_principal.get(client.principal)
        if self._by_network:
            address = ipaddress.ip_address(client.peer.rpartition(":")[0].strip("[]"))
            found = next((prefix for network, prefix in self._by_network if address in network), None)
        return Stranger() if found is None else Tenants(prefix=found)

    async def on_request(self, request: Any, call: Call) -> Request | Response | None:
        if call.key is ApiKey.ELECT_LEADERS and request.topic_partitions is None:
            raise RefusedByFilterError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "name the partitions")
        if call.key in (ApiKey.DESCRIBE_CONFIGS, ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS):
            _check_resources(request, is_read=call.key is ApiKey.DESCRIBE_CONFIGS)
        if call.key is ApiKey.CONSUMER_GROUP_HEARTBEAT and not request.group_id.strip():
            # With a prefix it would be a name like any other.
            raise RefusedByFilterError(ErrorCode.INVALID_REQUEST, "GroupId can't be empty.")
        rename_in_request(request, call, self._prefix.__add__)
        self._add(request)
        return request  # type: ignore[no-any-return]

    async def on_response(self, response: Any, call: Call) -> Response | None:
        rename_in_response(response, call, lambda topic: topic.removeprefix(self._prefix))
        self._strip(response)
        return response  # type: ignore[no-any-return]

    def _add(self, struct: Any) -> None:
        """Put the prefix before every name in a struct."""
        for field, kind in _plan_of(struct):
            value = getattr(struct, field)
            if not value:
                continue
            match kind:
                case Kind.NAME:
                    setattr(struct, field, self._prefix + value)
                case Kind.NAMES:
                    setattr(struct, field, [self._prefix + name if name else name for name in value])
                case Kind.PATTERN:
                    _check_pattern(value)
                    setattr(struct, field, _prefixed(self._prefix, value))
                case Kind.RESOURCE:
                    if struct.resource_type in _TOPIC_RESOURCES:
                        setattr(struct, field, self._prefix + value)
                case Kind.STRUCT:
                    self._add(value)
                case Kind.STRUCTS:
                    for item in value:
                        self._add(item)

    def _strip(self, struct: Any) -> bool:
        """Strip the prefix from every name in a struct, and remove what has another one; whether the struct itself is
        the tenant's.
        """
        is_own = True
        for field, kind in _plan_of(struct):
            value = getattr(struct, field)
            if not value:
                continue
            match kind:
                case Kind.NAME:
                    is_own = is_own and value.startswith(self._prefix)
                    setattr(struct, field, value.removeprefix(self._prefix))
                case Kind.NAMES:
                    own = [it.removeprefix(self._prefix) for it in value if not it or it.startswith(self._prefix)]
                    setattr(struct, field, own)
                case Kind.PATTERN:
                    setattr(struct, field, self._unwrapped(value))
                case Kind.MESSAGE:
                    setattr(struct, field, value.replace(self._prefix, ""))
                case Kind.RESOURCE:
                    if struct.resource_type in _TOPIC_RESOURCES:
                        setattr(struct, field, value.removeprefix(self._prefix))
                case Kind.STRUCT:
                    self._strip(value)
                case Kind.STRUCTS:
                    setattr(struct, field, [item for item in value if self._strip(item)])
        return is_own

    def _unwrapped(self, pattern: str) -> str:
        start = f"{re.escape(self._prefix)}(?:"
        return pattern[len(start) : -1] if pattern.startswith(start) else ""


class Stranger(Filter):
    """For clients that are no tenants: every request is refused."""

    def requests(self) -> frozenset[ApiKey]:
        return OFFERED | {ApiKey.DESCRIBE_CLUSTER}

    async def on_request(self, request: Any, call: Call) -> Request | Response | None:
        raise RefusedByFilterError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "this address belongs to no tenant")


@cache
def plan(cls: Any) -> tuple[tuple[str, Kind], ...]:
    """The fields of a struct that hold names, and the kinds of these names."""
    found = []
    for field in cls.FIELDS:
        kind = _kind(cls, field.name, field.kind, field.element)
        if kind is not None:
            found.append((field.name, kind))
    return tuple(found)


def _plan_of(struct: Any) -> tuple[tuple[str, Kind], ...]:
    cls: Any = type(struct)
    return plan(cls)


def _kind(cls: StructType, name: str, kind: str, element: Any) -> Kind | None:
    if isinstance(element, StructType):
        if not plan(element):
            return None
        return Kind.STRUCTS if kind == "array" else Kind.STRUCT
    if kind == "array":
        return Kind.NAMES if element.name == "string" and name in _NAMES_FIELDS else None
    if kind != "string":
        return None
    if name in _NAME_FIELDS or (name == "name" and _is_topic(cls)) or (name == "key" and cls.__name__ in _KEY_STRUCTS):
        return Kind.NAME
    return {_MESSAGE: Kind.MESSAGE, _RESOURCE: Kind.RESOURCE}.get(name) or (
        Kind.PATTERN if name in _PATTERN_FIELDS else None
    )


def _is_topic(cls: StructType) -> bool:
    """Whether the field `name` of a struct is the name of a topic."""
    return "Topic" in cls.__name__ and "Config" not in cls.__name__


def _check_pattern(pattern: str) -> None:
    """Refuse what is not an expression by itself: `x)|(.*` would be one after a prefix, and match what belongs to
    others.
    """
    try:
        compile_client_regex(pattern)
    except ClientRegexError as error:
        raise RefusedByFilterError(ErrorCode.INVALID_REGULAR_EXPRESSION, str(error)) from None


def _prefixed(prefix: str, pattern: str) -> str:
    try:
        return prefixed(prefix, pattern)
    except UnclearError as error:
        message = f"SubscribedTopicRegex `{pattern}` cannot be used here: {error}."
        raise RefusedByFilterError(ErrorCode.INVALID_REGULAR_EXPRESSION, message) from None


def _check_resources(request: Struct, *, is_read: bool) -> None:
    resources: Any = request
    for resource in resources.resources:
        kind = resource.resource_type
        if kind not in _TOPIC_RESOURCES and not (is_read and kind in _READABLE_RESOURCES):
            raise RefusedByFilterError(
                ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "only topics and groups belong to a tenant"
            )


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError:
        raise ValueError(f"by-address: {text!r} is not a network: write one like 10.1.0.0/16") from None
