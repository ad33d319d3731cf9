"""The REST proxy of a node: a client of the node's own listener, for the users of the cluster.

It shares the node's users and ACLs, and holds back the answers to users beyond one of their quotas.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import trio

from ottla.metadata.acls import AclOperation, AclResource
from ottla.registry.errors import RegistryError
from ottla.registry.node import OwnSchemas
from ottla.registry.registry import ForwardError
from ottla.registry.requests import SchemaRequest
from ottla.registry.serving import known_host
from ottla.registry.store.records import Content
from ottla.rest.access import Caller, Right
from ottla.rest.cluster import Cluster
from ottla.rest.consumers.consumers import Consumers
from ottla.rest.errors import NOT_AUTHORIZED, RestError, invalid_schema
from ottla.rest.groups import Groups
from ottla.rest.http.app import application
from ottla.rest.http.call import Proxy
from ottla.rest.limits import MAX_HELD_BACK_SECONDS
from ottla.rest.producing import Producing
from ottla.rest.work import Work
from ottla.schemas.codec import Codec
from ottla.security.access import Access as Rights
from ottla.server.http.known_logins import KnownLogins, NotLetInError
from ottla.server.http.mount import Mounted
from ottla.server.http.own_client import connect_as_node, own_endpoint, own_host_names
from ottla.server.http.server import prepare
from ottla.server.quotas.clients import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE
from ottla.server.schemas.source import SchemasUnavailableError

if TYPE_CHECKING:
    import socket
    from ssl import SSLContext

    from ottla.server.broker import Broker
    from ottla.server.http.login import HttpLogin

_CLIENT_ID: Final = "ottla-rest"
_OPERATIONS: Final = {
    Right.DESCRIBE: AclOperation.DESCRIBE,
    Right.READ: AclOperation.READ,
    Right.WRITE: AclOperation.WRITE,
    Right.SEE_SETTINGS: AclOperation.DESCRIBE_CONFIGS,
}


def mount(broker: Broker, login: HttpLogin | None, listening: socket.socket, context: SSLContext | None) -> Mounted:
    """The REST proxy of a broker that serves, on a socket that listens. Imports much: call it in a worker thread."""
    endpoint = own_endpoint(broker)
    new_cluster = partial(Cluster, connect_as_node(broker, endpoint, _CLIENT_ID), [(endpoint.host, endpoint.port)])
    cluster, work = new_cluster(), Work()
    consumers = Consumers(cluster, new_cluster, work)
    proxy = Proxy(
        cluster=cluster,
        producing=Producing(cluster, work, random.randrange),
        consumers=consumers,
        groups=Groups(cluster),
        work=work,
        access=NodeAccess(broker, login),
        schemas=NodeSchemas(broker),
        knows_host=known_host(lambda: own_host_names(broker)),
        now_ms=broker.clock.time_ms,
    )
    app: Any = application(proxy)

    return Mounted(_Service(cluster, consumers), prepare(app, listening, context))


class _Service:
    """What the addresses stand on, and what its owner runs and ends."""

    def __init__(self, cluster: Cluster, consumers: Consumers) -> None:
        self._cluster = cluster
        self._consumers = consumers

    async def run(self) -> None:
        """Until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._cluster.run)
            nursery.start_soon(self._consumers.run)

    async def end(self) -> None:
        """End all consumers: their members leave their groups."""
        await self._consumers.end_all()


class NodeCaller:
    """A user of the cluster, with the rights that its ACLs give; all of them where there is no authorizer."""

    def __init__(self, broker: Broker, principal: str, rights: Rights | None) -> None:
        self.principal = principal
        self._broker = broker
        self._rights = rights

    def may(self, right: Right, topic: str) -> bool:
        return self._allows(right, topic, is_asked=False)

    def require(self, right: Right, topic: str) -> None:
        if not self._allows(right, topic, is_asked=True):
            raise RestError(NOT_AUTHORIZED, f"{self.principal} may not {right.value} {topic}")

    def require_group(self, group_id: str) -> None:
        if self._rights is not None and not self._rights.allows(AclOperation.READ, AclResource.GROUP, group_id):
            raise RestError(NOT_AUTHORIZED, f"{self.principal} may not read as a member of group {group_id}")

    def may_see_group(self, group_id: str) -> bool:
        rights = self._rights
        return rights is None or rights.allows(AclOperation.DESCRIBE, AclResource.GROUP, group_id, is_asked=False)

    def may_create(self, topic: str) -> bool:
        if not self._broker.config.auto_create_topics_enable:
            return False
        rights = self._rights
        return (
            rights is None
            or rights.allows_on_cluster(AclOperation.CREATE, is_asked=False)
            or rights.allows(AclOperation.CREATE, AclResource.TOPIC, topic, is_asked=False)
        )

    async def has_produced(self, size_bytes: int) -> None:
        await self._count(PRODUCER_BYTE_RATE, size_bytes)

    async def has_consumed(self, size_bytes: int) -> None:
        await self._count(CONSUMER_BYTE_RATE, size_bytes)

    async def has_worked(self, seconds: float) -> None:
        ahead = self._broker.quotas.throttle_seconds_by_time(self.principal, _CLIENT_ID, seconds)
        await self._hold_back(REQUEST_PERCENTAGE, ahead)

    async def _count(self, kind: str, size_bytes: int) -> None:
        ahead = self._broker.quotas.throttle_seconds(kind, self.principal, _CLIENT_ID, size_bytes)
        await self._hold_back(kind, ahead)

    async def _hold_back(self, kind: str, ahead_seconds: float) -> None:
        if ahead_seconds:
            self._broker.quotas.throttles[kind].add(ahead_seconds)
            await trio.sleep(min(ahead_seconds, MAX_HELD_BACK_SECONDS))

    def _allows(self, right: Right, topic: str, *, is_asked: bool) -> bool:
        if self._rights is None:
            return True
        return self._rights.allows(_OPERATIONS[right], AclResource.TOPIC, topic, is_asked=is_asked)


class NodeAccess:
    """Lets the cluster's users in."""

    def __init__(self, broker: Broker, login: HttpLogin | None) -> None:
        self._broker = broker
        self._logins = KnownLogins(broker, login)

    async def caller(self, headers: Mapping[str, str], host: str, certificate: str | None = None) -> Caller:
        """The sender of a request. Raises RestError 401 or 429."""
        try:
            principal = await self._logins.principal(headers, host, certificate)
        except NotLetInError as error:
            code = 40101 if error.status == 401 else error.status
            raise RestError(code, str(error), error.headers) from None
        authorizer = self._broker.authorizer
        rights = None if authorizer is None else Rights(authorizer, principal, host, "REST")
        return NodeCaller(self._broker, principal, rights)


class NodeSchemas:
    """Implements SchemaStore by the registry that the broker serves, or that its settings name."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def codec(self, schema_id: int) -> Codec | None:
        try:
            return await self._broker.codecs.find(schema_id)
        except SchemasUnavailableError as error:
            raise _unavailable(error) from None

    async def subjects(self, schema_id: int) -> frozenset[str]:
        source = self._broker.codecs.source
        if source is None:
            return frozenset()
        try:
            return await source.subjects(schema_id)
        except SchemasUnavailableError as error:
            raise _unavailable(error) from None

    async def register(self, subject: str, kind: str, text: str) -> int:
        source = self._broker.codecs.source
        if not isinstance(source, OwnSchemas):
            raise RestError(50101, "Schemas can be registered only where the broker serves the schema registry itself")
        registry, request = source.registry, SchemaRequest(Content(kind, text))
        try:
            await registry.log.wait_ready()
            try:
                return (await registry.lookup(subject, request, normalize=False, deleted=False)).id
            except RegistryError as error:
                if error.status != 404:
                    raise
            return (await registry.register(subject, request, normalize=False)).id
        except ForwardError as error:
            what = f"the schema is new, and the registry at {error.writer.url} registers: register it there"
            raise RestError(50301, what) from None
        except RegistryError as error:
            if error.status >= 500:
                raise _unavailable(error) from None
            raise invalid_schema(error) from None


def _unavailable(error: Exception) -> RestError:
    return RestError(50301, f"The schema registry cannot be asked: {error}")
