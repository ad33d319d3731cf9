"""The registry of a node: a client of the node's own listener, for the users of the cluster.

It shares the node's users and ACLs. A subject is protected as the topic resource `subject:` and its name: Read to look
up, Write to register, Delete, DescribeConfigs and AlterConfigs for its compatibility level and mode. Those of
everything are protected by the cluster's DescribeConfigs and AlterConfigs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import trio

from ottla.client.schema_registry import SchemaText
from ottla.metadata.acls import CLUSTER_NAME, AclOperation, AclResource
from ottla.registry.errors import RegistryError, UnavailableError
from ottla.registry.http.access import PRINCIPAL, Caller, Everybody, RefusedError, Right
from ottla.registry.http.app import RegistryApp
from ottla.registry.http.forwarding import OpenStream, open_plain
from ottla.registry.names import DEFAULT_CONTEXT
from ottla.registry.parsing import whole
from ottla.registry.registry import Registry
from ottla.registry.serving import identity_of, known_host, served
from ottla.registry.store.log import SchemaLog
from ottla.registry.writer.election import Election
from ottla.registry.writer.identity import Identity
from ottla.security.access import Access as Rights
from ottla.server.http.known_logins import KnownLogins, NotLetInError
from ottla.server.http.mount import Mounted
from ottla.server.http.own_client import connect_as_node, own_endpoint, own_host_names
from ottla.server.schemas.source import SchemasUnavailableError

if TYPE_CHECKING:
    import socket
    from ssl import SSLContext

    from ottla.metadata.image import Endpoint
    from ottla.registry.http.access import Access
    from ottla.registry.store.state import IdEntry
    from ottla.server.broker import Broker
    from ottla.server.http.login import HttpLogin

_CLIENT_ID: Final = "ottla-registry"
_OPERATIONS: Final = {
    Right.READ: AclOperation.READ,
    Right.WRITE: AclOperation.WRITE,
    Right.DELETE: AclOperation.DELETE,
    Right.READ_SETTINGS: AclOperation.DESCRIBE_CONFIGS,
    Right.CHANGE_SETTINGS: AclOperation.ALTER_CONFIGS,
}


def mount(broker: Broker, login: HttpLogin | None, listening: socket.socket, context: SSLContext | None) -> Mounted:
    """The registry of a broker that serves, on a socket that listens. Imports much: call it in a worker thread."""
    endpoint = own_endpoint(broker)
    connect, bootstrap = connect_as_node(broker, endpoint, _CLIENT_ID), [(endpoint.host, endpoint.port)]
    identity = identity_of(listening, "http" if context is None else "https", endpoint.host)
    registry = Registry(SchemaLog(connect, bootstrap), Election(connect, bootstrap, identity))
    if broker.codecs.source is None:
        broker.codecs.look_up_in(OwnSchemas(registry))
    access: Access = Everybody()
    if login is not None or broker.authorizer is not None:
        access = NodeAccess(broker, login)
    knows = known_host(lambda: own_host_names(broker))
    app = RegistryApp(registry, access, knows, _open_stream(broker, endpoint))
    return Mounted(registry, served(app, listening, context))


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


def _open_stream(broker: Broker, own: Endpoint) -> OpenStream:
    """The connections to other nodes' registries: by TLS as between nodes, if they use it."""
    if not own.security_protocol.endswith("SSL"):
        return open_plain
    from ottla.security import between_brokers

    async def connect(identity: Identity) -> trio.abc.Stream:
        if identity.scheme != "https":
            return await open_plain(identity)
        endpoint = own._replace(host=identity.host, port=identity.port)
        return await between_brokers.open_stream(broker.config, endpoint)()

    return connect


class NodeCaller:
    """A user of the cluster, with the rights that its ACLs give; all of them where there is no authorizer."""

    def __init__(self, principal: str, rights: Rights | None, *, is_in_headers: bool) -> None:
        self.principal = principal
        self.forwarded_as = None if is_in_headers else principal
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


class NodeAccess:
    """Lets the cluster's users in."""

    def __init__(self, broker: Broker, login: HttpLogin | None) -> None:
        self._broker = broker
        self._asks_for_login = login is not None
        self._logins = KnownLogins(broker, login)

    async def caller(self, headers: Mapping[str, str], host: str, certificate: str | None = None) -> Caller:
        """The sender of a request. Raises RefusedError 401, 403 or 429."""
        try:
            principal = await self._logins.principal(headers, host, certificate)
        except NotLetInError as error:
            raise RefusedError(error.status, str(error), error.headers) from None
        if not self._asks_for_login:
            principal = self._on_behalf_of(headers.get(PRINCIPAL, principal), principal, host)
        return NodeCaller(principal, self._rights(principal, host), is_in_headers=self._asks_for_login)

    def _on_behalf_of(self, asking: str, sender: str, host: str) -> str:
        """The principal of a request. Only brokers, which have CLUSTER_ACTION, may send one for another principal."""
        rights = self._rights(sender, host)
        if asking == sender or rights is None or rights.allows_on_cluster(AclOperation.CLUSTER_ACTION):
            return asking
        raise RefusedError(40301, f"{sender} may not ask on behalf of {asking}")

    def _rights(self, principal: str, host: str) -> Rights | None:
        authorizer = self._broker.authorizer
        return None if authorizer is None else Rights(authorizer, principal, host, "REGISTRY")
