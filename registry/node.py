"""The registry of a node: a client of the node's own listener, for the users of the cluster.

It shares the node's users and ACLs. A subject is protected as the topic resource `subject:` and its name: Read to look
up, Write to register, Delete, DescribeConfigs and AlterConfigs for its compatibility level and mode. Those of
everything are protected by the cluster's DescribeConfigs and AlterConfigs.
"""

from __future__ import annotations

import hmac
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from ottla.client.schema_registry import SchemaText
from ottla.client.security import Security
from ottla.client.trio_connection import TrioConnection
from ottla.registry.errors import RegistryError, UnavailableError
from ottla.registry.http.access import Caller, Everybody, RefusedError, Right
from ottla.registry.http.app import RegistryApp
from ottla.registry.http.forwarding import OpenStream, open_plain
from ottla.registry.names import DEFAULT_CONTEXT
from ottla.registry.parsing import whole
from ottla.registry.registry import Registry
from ottla.registry.serving import identity_of, known_host, served
from ottla.registry.store.log import SchemaLog
from ottla.registry.writer.election import Election
from ottla.registry.writer.identity import Identity
from ottla.server.http.login import HttpLogin, LockedOutError, WrongPasswordError, basic_credentials
from ottla.server.metadata.acls import CLUSTER_NAME, AclOperation, AclResource
from ottla.server.schemas.source import SchemasUnavailableError
from ottla.server.security.access import Access as Rights
from ottla.server.security.principal import ANONYMOUS

if TYPE_CHECKING:
    import socket
    from ssl import SSLContext

    from ottla.registry.http.access import Access
    from ottla.registry.store.connections import Connect
    from ottla.registry.store.state import IdEntry
    from ottla.server.broker import Broker
    from ottla.server.metadata.image import Endpoint

_CLIENT_ID: Final = "ottla-registry"
_OPERATIONS: Final = {
    Right.READ: AclOperation.READ,
    Right.WRITE: AclOperation.WRITE,
    Right.DELETE: AclOperation.DELETE,
    Right.READ_SETTINGS: AclOperation.DESCRIBE_CONFIGS,
    Right.CHANGE_SETTINGS: AclOperation.ALTER_CONFIGS,
}
_ASK_BASIC: Final = {"www-authenticate": 'Basic realm="Ottla", charset="UTF-8"'}
_ASK_BEARER: Final = {"www-authenticate": 'Bearer realm="Ottla"'}
_KEPT_LOGINS: Final = 1_000
_KEPT_SECONDS: Final = 300.0
_MAX_HEADER_LENGTH: Final = 4_096


class Mounted(NamedTuple):
    """A registry that can be run: `log` reads the topic, `serve` answers."""

    log: Callable[[], Awaitable[None]]
    serve: Callable[[], Awaitable[None]]


def mount(broker: Broker, login: HttpLogin | None, listening: socket.socket, context: SSLContext | None) -> Mounted:
    """The registry of a broker that serves, on a socket that listens. Imports much: call it in a worker thread."""
    endpoint = _own_endpoint(broker)
    connect, bootstrap = _connect(broker, endpoint), [(endpoint.host, endpoint.port)]
    identity = identity_of(listening, "http" if context is None else "https", endpoint.host)
    registry = Registry(SchemaLog(connect, bootstrap), Election(connect, bootstrap, identity))
    if broker.codecs.source is None:
        broker.codecs.look_up_in(OwnSchemas(registry))
    access: Access = Everybody()
    if login is not None or broker.authorizer is not None:
        access = NodeAccess(broker, login)
    knows = known_host(lambda: (*(broker.config.ottla_console_allowed_hosts or ()), *_advertised(broker)))
    app = RegistryApp(registry, access, knows, _open_stream(broker, endpoint))
    return Mounted(registry.run, served(app, listening, context))


class OwnSchemas:
    """Implements the broker's SchemaSource by the registry in its process."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry

    async def schema(self, schema_id: int) -> SchemaText | None:
        entry = await self._entry(schema_id)
        if entry is None or not entry.versions:
            return None
        try:
            found = whole(self.registry.state, entry.content, entry.versions[0].subject)
        except RegistryError as error:
            raise SchemasUnavailableError(str(error)) from None
        return SchemaText(found.kind, found.text, dict(found.references))

    async def subjects(self, schema_id: int) -> frozenset[str]:
        entry = await self._entry(schema_id)
        return frozenset() if entry is None else frozenset(it.subject for it in entry.versions if not it.deleted)

    async def _entry(self, schema_id: int) -> IdEntry | None:
        try:
            await self.registry.log.wait_ready()
        except UnavailableError as error:
            raise SchemasUnavailableError(str(error)) from None
        return self.registry.state.by_id(schema_id, DEFAULT_CONTEXT)


def _own_endpoint(broker: Broker) -> Endpoint:
    """The listener that brokers use among themselves; where none is named, the first one."""
    endpoints = broker.metadata.brokers[broker.node_id].endpoints
    wanted = broker.config.inter_broker_listener_name
    return next((endpoint for endpoint in endpoints if endpoint.listener == wanted), endpoints[0])


def _connect(broker: Broker, own: Endpoint) -> Connect:
    if own.security_protocol == "PLAINTEXT":
        return lambda host, port: TrioConnection(host, port, client_id=_CLIENT_ID)
    from ottla.server.security import between_brokers

    def connect(host: str, port: int) -> TrioConnection:
        endpoint = own._replace(host=host, port=port)
        return TrioConnection(
            host,
            port,
            client_id=_CLIENT_ID,
            open_stream=between_brokers.open_stream(broker.config, endpoint),
            security=Security(between_brokers.login(broker.config, endpoint)),
        )

    return connect


def _open_stream(broker: Broker, own: Endpoint) -> OpenStream:
    """What connects to another node's registry; by TLS as to another node, if that is how they speak."""
    if not own.security_protocol.endswith("SSL"):
        return open_plain
    from ottla.server.security import between_brokers

    async def connect(identity: Identity) -> trio.abc.Stream:
        if identity.scheme != "https":
            return await open_plain(identity)
        endpoint = own._replace(host=identity.host, port=identity.port)
        return await between_brokers.open_stream(broker.config, endpoint)()

    return connect


def _advertised(broker: Broker) -> list[str]:
    registered = broker.metadata.brokers.get(broker.node_id)
    return [] if registered is None else [endpoint.host.lower() for endpoint in registered.endpoints]


class NodeCaller:
    """A user of the cluster, with the rights that its ACLs give; all of them where there is no authorizer."""

    def __init__(self, principal: str, rights: Rights | None) -> None:
        self.principal = principal
        self._rights = rights

    def may(self, right: Right, subject: str | None) -> bool:
        return self._allows(right, subject, is_asked=False)

    def require(self, right: Right, subject: str | None) -> None:
        if not self._allows(right, subject, is_asked=True):
            what = "everything" if subject is None else f"subject {subject}"
            raise RefusedError(40301, f"{self.principal} may not {right.value} {what}")

    def _allows(self, right: Right, subject: str | None, *, is_asked: bool) -> bool:
        if self._rights is None:
            return True
        resource, name = AclResource.TOPIC, f"subject:{subject}"
        if subject is None:
            resource, name = AclResource.CLUSTER, CLUSTER_NAME
        return self._rights.allows(_OPERATIONS[right], resource, name, is_asked=is_asked)


class _Kept(NamedTuple):
    """A login that was right: of a user with a password, or by a token (None)."""

    principal: str
    name: str | None
    proof: Hashable
    ends_at: float


class NodeAccess:
    """Lets the cluster's users in by HTTP's Basic authentication, and by tokens where the HTTP port takes them. A
    password that was right is not hashed again for some minutes, unless it has changed.
    """

    def __init__(self, broker: Broker, login: HttpLogin | None) -> None:
        self._broker = broker
        self._login = login
        self._secret = secrets.token_bytes(32)
        self._kept: OrderedDict[bytes, _Kept] = OrderedDict()

    async def caller(self, headers: Mapping[str, str], host: str) -> Caller:
        """Who sends a request. Raises RefusedError 401 or 429."""
        principal = ANONYMOUS if self._login is None else await self._principal(self._login, headers, host)
        authorizer = self._broker.authorizer
        return NodeCaller(principal, None if authorizer is None else Rights(authorizer, principal, host, "REGISTRY"))

    async def _principal(self, login: HttpLogin, headers: Mapping[str, str], host: str) -> str:
        scheme, _, given = headers.get("authorization", "").partition(" ")
        is_token = scheme.lower() == "bearer" and login.takes_tokens
        if not is_token and (scheme.lower() != "basic" or len(given) > _MAX_HEADER_LENGTH):
            raise RefusedError(401, "Unauthorized", _ASK_BASIC)
        key = hmac.new(self._secret, f"{is_token} {given}".encode(), sha256).digest()
        kept = self._kept.get(key)
        if kept is not None and kept.ends_at > trio.current_time() and kept.proof == _proof(login, kept.name):
            return kept.principal
        self._kept.pop(key, None)
        try:
            checked = await (_by_token(login, given.strip(), host) if is_token else _by_password(login, given, host))
        except LockedOutError as error:
            raise RefusedError(429, str(error), {"retry-after": str(round(error.seconds) + 1)}) from None
        except WrongPasswordError as error:
            raise RefusedError(401, str(error), _ASK_BEARER if is_token else _ASK_BASIC) from None
        self._kept[key] = checked
        if len(self._kept) > _KEPT_LOGINS:
            self._kept.popitem(last=False)
        return checked.principal


async def _by_password(login: HttpLogin, given: str, host: str) -> _Kept:
    name, password = basic_credentials(given)
    principal = await login.check(name, password, host)
    return _Kept(principal, name, login.proof(name), trio.current_time() + _KEPT_SECONDS)


async def _by_token(login: HttpLogin, token: str, host: str) -> _Kept:
    found = await login.check_token(token, host)
    return _Kept(found.principal, None, None, trio.current_time() + min(found.valid_seconds, _KEPT_SECONDS))


def _proof(login: HttpLogin, name: str | None) -> Hashable:
    """What a login that was right depends on; a token on nothing but its time."""
    return None if name is None else login.proof(name)
