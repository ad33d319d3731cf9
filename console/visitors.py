"""Visitors of the console: the sessions of users who have logged in, and their rights.

Where the HTTP port does not authenticate, every visitor is User:ANONYMOUS. Where there is an authorizer, it decides by
the same rules as for clients; otherwise every visitor who is admitted may do everything.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.console.guard import session_cookie
from ottla.metadata.acls import CLUSTER_NAME, AclOperation, AclResource
from ottla.security.access import Access
from ottla.security.principal import ANONYMOUS
from ottla.server.http.peer import peer_host

if TYPE_CHECKING:
    from starlette.requests import Request

    from ottla.server.broker import Broker
    from ottla.server.http.login import HttpLogin

IDLE_SECONDS: Final = 3600.0
LIFE_SECONDS: Final = 12 * 3600.0
_MAX_SESSIONS: Final = 1_000
BY_ITSELF: Final = "ottla-by-itself"
"""The header of a page that refreshes by itself: nobody may be there, so the session goes on being idle."""

_ASKER: Final = "CONSOLE"


class DeniedError(Exception):
    """The visitor may not do this; the text is a sentence for the page."""


class Visitor:
    """The sender of a request to the console, and their rights."""

    def __init__(self, principal: str, access: Access | None, name: str | None = None) -> None:
        self.principal = principal
        #: The user who has logged in; None where nobody is asked.
        self.name = name
        self._access = access

    def may(self, operation: AclOperation, resource: AclResource, name: str) -> bool:
        """Whether they may; for what is shown and offered."""
        return self._access is None or self._access.allows(operation, resource, name, is_asked=False)

    def may_on_cluster(self, operation: AclOperation) -> bool:
        return self.may(operation, AclResource.CLUSTER, CLUSTER_NAME)

    def may_on_topic(self, operation: str, name: str) -> bool:
        """The same for templates, by the operation's name."""
        return self.may(AclOperation[operation], AclResource.TOPIC, name)

    def may_change_topic(self, name: str) -> bool:
        return any(self.may_on_topic(operation, name) for operation in ("ALTER", "ALTER_CONFIGS", "DELETE"))

    def may_change_group(self, name: str) -> bool:
        return any(
            self.may(operation, AclResource.GROUP, name) for operation in (AclOperation.READ, AclOperation.DELETE)
        )

    @property
    def may_create_topics(self) -> bool:
        """Whether there is a topic that they could make."""
        return self._access is None or (
            self.may_on_cluster(AclOperation.CREATE) or self._access.allows_any(AclOperation.CREATE, AclResource.TOPIC)
        )

    def require(self, operation: AclOperation, resource: AclResource, name: str) -> None:
        """For what they ask to be done: raises DeniedError, and is told to the audit log."""
        if self._access is not None and not self._access.allows(operation, resource, name):
            what = "cluster" if resource is AclResource.CLUSTER else f"{resource.name.lower().replace('_', ' ')} {name}"
            raise DeniedError(f"{self.principal} may not {operation.name.lower().replace('_', ' ')}: {what}.")


class _Session(NamedTuple):
    name: str
    principal: str
    proof: Hashable
    ends_at: float
    idle_at: float


class Visitors:
    """The sessions, at most so many: the one that has been idle longest goes first.

    A session ends when it is idle or old, when the user logs out, is deleted or gets another password.
    """

    def __init__(self, broker: Broker, login: HttpLogin | None, clock: Callable[[], float]) -> None:
        self._broker = broker
        self._clock = clock
        self._sessions: dict[str, _Session] = {}
        self.login = login

    def of(self, request: Request) -> Visitor | None:
        """The sender of a request; None if they have to log in before."""
        if self.login is None:
            return Visitor(ANONYMOUS, self._access(request, ANONYMOUS))
        key = request.cookies.get(session_cookie(request), "")
        session = self._sessions.pop(key, None)
        now = self._clock()
        if session is None or now >= min(session.ends_at, session.idle_at):
            return None
        if self.login.proof(session.name) != session.proof:
            return None
        if request.headers.get(BY_ITSELF) is None:
            session = session._replace(idle_at=now + IDLE_SECONDS)
        self._sessions[key] = session
        return Visitor(session.principal, self._access(request, session.principal), session.name)

    async def log_in(self, request: Request, name: str, password: str) -> str:
        """Begin a session, of which the answer is the key. Raises LockedOutError or WrongPasswordError."""
        assert self.login is not None
        principal = await self.login.check(name, password, peer_host(request))
        now = self._clock()
        if len(self._sessions) >= _MAX_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        key = secrets.token_hex(16)
        self._sessions[key] = _Session(name, principal, self.login.proof(name), now + LIFE_SECONDS, now + IDLE_SECONDS)
        return key

    def log_out(self, request: Request) -> None:
        """End the session of a request, if it has one."""
        self._sessions.pop(request.cookies.get(session_cookie(request), ""), None)

    def _access(self, request: Request, principal: str) -> Access | None:
        if self._broker.authorizer is None:
            return None
        return Access(self._broker.authorizer, principal, peer_host(request), _ASKER)
