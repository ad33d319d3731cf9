"""Common parts of the administrative APIs' handlers: an outcome as code and message, and authorized operations."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from ottla.kproto.errors import ErrorCode
from ottla.metadata.acls import CLUSTER_NAME, AclOperation, AclResource
from ottla.security.access import Access
from ottla.server.apis.errors import error_code, error_message

#: Bits of the operations that exist for a resource, which without an authorizer are all allowed (KIP-430).
TOPIC_OPERATIONS: Final = sum(1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11))
CLUSTER_OPERATIONS: Final = sum(1 << operation for operation in (5, 7, 8, 9, 10, 11, 12))

#: Means that operations were not asked for.
NOT_ASKED: Final = -(1 << 31)


def cluster_operations(access: Access | None) -> int:
    """The bits of what may be done to the cluster; 0 without the right to describe it, as in Kafka."""
    if access is None:
        return CLUSTER_OPERATIONS
    if not access.allows_on_cluster(AclOperation.DESCRIBE):
        return 0
    return access.operations(CLUSTER_OPERATIONS, AclResource.CLUSTER, CLUSTER_NAME)


def may_describe(access: Access | None) -> Callable[[str], bool] | None:
    """Whether the sender may describe a topic that its request is not about; None if everybody may."""
    return None if access is None else partial(access.allows, AclOperation.DESCRIBE, AclResource.TOPIC, is_asked=False)


def outcome(error: BaseException | None) -> tuple[ErrorCode, str | None]:
    """The code and message of an error, NONE for success; an error without words has no message."""
    return (ErrorCode.NONE, None) if error is None else (error_code(error), error_message(error) or None)


def duplicates(names: Iterable[str]) -> set[str]:
    """The ones that occur more than once."""
    seen: set[str] = set()
    repeated: set[str] = set()
    for name in names:
        (repeated if name in seen else seen).add(name)
    return repeated
