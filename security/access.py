"""Authorization of one request's sender. Each question leaves a line in the audit log.

What is denied is logged at level info, what is allowed at debug. A question that only serves to leave something out of
an answer, or to tell clients what they may do, is not logged.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from ottla.metadata.acls import CLUSTER_NAME, AclOperation, AclResource

if TYPE_CHECKING:
    from ottla.security.authorizer import Authorizer

audit = logging.getLogger("ottla.audit")

_ALL_OPERATIONS: Final = tuple(AclOperation)
_MAX_SHOWN_LENGTH: Final = 249


class Access:
    """The rights of one request's principal."""

    __slots__ = ("_asker", "_authorizer", "_host", "_logs_allowed", "_principal")

    def __init__(self, authorizer: Authorizer, principal: str, host: str, asker: str) -> None:
        """`asker` is the API of the request, for the log."""
        self._authorizer = authorizer
        self._principal = principal
        self._host = host
        self._asker = asker
        self._logs_allowed = audit.isEnabledFor(logging.DEBUG)

    def allows(self, operation: AclOperation, resource: AclResource, name: str, *, is_asked: bool = True) -> bool:
        """Whether the principal may do this; `is_asked` if that is what the request is about."""
        is_allowed = self._authorizer.allows(self._principal, self._host, operation, resource, name)
        if is_asked and (not is_allowed or self._logs_allowed):
            self._log(operation, resource, name, is_allowed=is_allowed)
        return is_allowed

    def allows_on_cluster(self, operation: AclOperation, *, is_asked: bool = True) -> bool:
        return self.allows(operation, AclResource.CLUSTER, CLUSTER_NAME, is_asked=is_asked)

    def allows_any(self, operation: AclOperation, resource: AclResource) -> bool:
        """Whether the principal may do this to some resource of the type."""
        return self._authorizer.allows_any(self._principal, self._host, operation, resource)

    def operations(self, possible: int, resource: AclResource, name: str) -> int:
        """Which of the possible operations, a bit for each, the principal may do (KIP-430)."""
        return sum(
            1 << operation
            for operation in _ALL_OPERATIONS
            if possible >> operation & 1 and self.allows(operation, resource, name, is_asked=False)
        )

    def _log(self, operation: AclOperation, resource: AclResource, name: str, *, is_allowed: bool) -> None:
        decision = self._authorizer.decide(self._principal, self._host, operation, resource, name)
        name = shown(name)
        audit.log(
            logging.DEBUG if is_allowed else logging.INFO,
            "%s is %s %s on %s %s from %s by %s: %s",
            self._principal,
            "allowed" if is_allowed else "denied",
            operation.name,
            resource.name,
            name,
            self._host,
            self._asker,
            decision.rule,
            extra={
                "principal": self._principal,
                "allowed": is_allowed,
                "operation": operation.name,
                "resource": f"{resource.name}:{name}",
                "host": self._host,
                "api": self._asker.lower(),
                "rule": decision.rule,
            },
        )


def shown(name: str) -> str:
    """A name that a client chose, made fit for one line: nobody writes lines of their own into the log."""
    name = name if len(name) <= _MAX_SHOWN_LENGTH else f"{name[:_MAX_SHOWN_LENGTH]}…"
    return name if name.isprintable() else ascii(name)
