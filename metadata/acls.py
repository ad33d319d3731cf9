"""Access control lists as they are stored: what an entry consists of, which are valid, and which a filter matches.

Kafka's counterparts are org.apache.kafka.common.acl, org.apache.kafka.common.resource and
org.apache.kafka.controller.AclControlManager.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Final, NamedTuple

from ottla.metadata.acl_networks import Network
from ottla.metadata.errors import InvalidRequestError, UnsupportedFeatureLevelError

ANY: Final = 1
"""In a filter: any resource type, pattern type, operation or permission."""

MATCH: Final = 2
"""In a filter: the pattern types that fit the name, prefixes and wildcards included."""

WILDCARD: Final = "*"
"""Any name of a resource (literal), any host; `User:*` is any principal."""

CLUSTER_NAME: Final = "kafka-cluster"


class AclResource(IntEnum):
    """The type of a protected resource; the numbers are those of the wire."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class AclPattern(IntEnum):
    """How an entry names its resources."""

    LITERAL = 3
    PREFIXED = 4


class AclOperation(IntEnum):
    """An operation that an ACL allows or denies."""

    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclPermission(IntEnum):
    """Whether an entry grants or denies."""

    DENY = 2
    ALLOW = 3


class Acl(NamedTuple):
    """One entry. Equal entries are the same entry."""

    resource: AclResource
    name: str
    pattern: AclPattern
    principal: str
    host: str
    operation: AclOperation
    permission: AclPermission

    def __str__(self) -> str:
        pattern = "" if self.pattern is AclPattern.LITERAL else "*"
        host = "" if self.host == WILDCARD else f" from {self.host}"
        return (
            f"{self.permission.name} {self.principal} {self.operation.name} on {self.resource.name} "
            f"{self.name}{pattern}{host}"
        )


class AclFilter(NamedTuple):
    """Which entries to match; numbers as on the wire, None is any."""

    resource: int = ANY
    name: str | None = None
    pattern: int = ANY
    principal: str | None = None
    host: str | None = None
    operation: int = ANY
    permission: int = ANY

    def check(self) -> None:
        """Raises InvalidRequestError for numbers that mean nothing."""
        if self.resource not in (ANY, *AclResource) or self.pattern not in (ANY, MATCH, *AclPattern):
            raise InvalidRequestError("Unknown patternFilter.")
        if self.operation not in (ANY, *AclOperation) or self.permission not in (ANY, *AclPermission):
            raise InvalidRequestError("Unknown entryFilter.")

    def accepts(self, acl: Acl) -> bool:
        return (
            self.resource in (ANY, acl.resource)
            and self.operation in (ANY, acl.operation)
            and self.permission in (ANY, acl.permission)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.pattern in (ANY, MATCH, acl.pattern)
            and (self.name is None or self._names(self.name, acl))
        )

    def _names(self, name: str, acl: Acl) -> bool:
        if self.pattern != MATCH:
            return name == acl.name
        if acl.pattern is AclPattern.PREFIXED:
            return name.startswith(acl.name)
        return acl.name in (name, WILDCARD)


def new_acl(
    resource: int,
    name: str,
    pattern: int,
    principal: str,
    host: str,
    operation: int,
    permission: int,
    *,
    allows_networks: bool = True,
) -> Acl:
    """An entry from the fields of a request; raises InvalidRequestError, or UnsupportedFeatureLevelError for a host
    that is a network unless the cluster `allows_networks`.
    """
    if resource == AclResource.CLUSTER and name != CLUSTER_NAME:
        raise InvalidRequestError(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not name:
        raise InvalidRequestError("Invalid empty resource name")
    # An entry whose principal cannot be parsed would fail every check that reads it.
    if ":" not in principal:
        raise InvalidRequestError(
            f"Could not parse principal from `{principal}` (no colon is present separating the principal type from the "
            "principal name)"
        )
    if not host:
        raise InvalidRequestError("Host pattern cannot be null or empty")
    kinds = ((AclResource, resource, "resourceType"), (AclPattern, pattern, "patternType"))
    for kind, number, what in (
        *kinds,
        (AclOperation, operation, "operation"),
        (AclPermission, permission, "permissionType"),
    ):
        if number not in list(kind):
            raise InvalidRequestError(f"Invalid {what} {_NAMES.get(number, 'UNKNOWN')}")
    _check_host(host, allows_networks=allows_networks)
    return Acl(
        AclResource(resource),
        name,
        AclPattern(pattern),
        principal,
        host,
        AclOperation(operation),
        AclPermission(permission),
    )


def _check_host(host: str, *, allows_networks: bool) -> None:
    if not host:
        raise InvalidRequestError("Host pattern cannot be null or empty")
    if "/" not in host:
        return
    if not allows_networks:
        raise UnsupportedFeatureLevelError("CIDR-based ACL host patterns require metadata version 4.4-IV1 or higher.")
    try:
        Network.parse(host)
    except ValueError as error:
        raise InvalidRequestError(f"Invalid CIDR notation '{host}': {error}") from None


_NAMES: Final = {ANY: "ANY", MATCH: "MATCH"}


def matching(acls: Iterable[Acl], filters: Iterable[AclFilter]) -> list[list[Acl]]:
    """For each filter the entries that it matches, sorted."""
    everything = list(acls)
    return [sorted(acl for acl in everything if one.accepts(acl)) for one in filters]
