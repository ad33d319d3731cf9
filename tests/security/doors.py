"""A broker whose users may read different topics, and the proxies before it, each in this process."""

from __future__ import annotations

import re
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final
from uuid import UUID

import trio

from ottla.cli.proxy.security import Securities
from ottla.client import sasl
from ottla.client.admin.users import credential
from ottla.client.security import Security
from ottla.kproto.messages.access.sasl_authenticate import SaslAuthenticateRequest
from ottla.kproto.messages.access.sasl_handshake import SaslHandshakeRequest
from ottla.kproto.messages.cluster.api_versions import ApiVersionsRequest
from ottla.kproto.messages.data.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.kproto.messages.data.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.kproto.messages.topics.metadata import MetadataRequest, MetadataResponse
from ottla.kproto.records import Record, build_batch
from ottla.metadata.acls import Acl, AclOperation, AclPattern, AclPermission, AclResource
from ottla.metadata.scram_changes import ScramUpsertion
from ottla.proxy.filters.chain import Named, Scope
from ottla.proxy.filters.filter import Call, Filter, response_hook
from ottla.proxy.proxy import Proxy
from ottla.proxy.shared import PLAIN_WAYS, CacheSettings, Settings, Ways
from ottla.proxy.transport import Accepted, Transport
from ottla.settings.sources import STANDARD_AUTHORIZER
from tests.proxy.upstreams import assert_nothing_held
from tests.security.logins import PASSWORDS, SCRAM, TOPICS, Door
from tests.servers import Client, RunningNode

HOST: Final = "127.0.0.1"
_REAUTHENTICATES_MS: Final = "3600000"
_ADMIN: Final = "admin-secret"
_LATE_SECONDS: Final = 0.02
BROKER: Final = {
    "listeners": f"SASL_PLAINTEXT://{HOST}:0",
    "sasl.enabled.mechanisms": f"PLAIN,{SCRAM}",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'PlainLoginModule required user_admin="{_ADMIN}";',
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": "User:admin",
    "connection.failed.authentication.delay.ms": "0",
    "connections.max.reauth.ms": _REAUTHENTICATES_MS,
}
_LISTEN: Final = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": f"PLAIN,{SCRAM}",
    "connection.failed.authentication.delay.ms": "0",
    "connections.max.reauth.ms": _REAUTHENTICATES_MS,
    **{f"users.{name}": password for name, password in PASSWORDS.items()},
}
_UPSTREAM: Final = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "admin",
    "sasl.password": _ADMIN,
}


class LateEnd:
    """A connection to upstream whose end arrives later than the answers before it, as on a network."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._has_ended = self._tells_end = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def receive_into(self, buffer: memoryview) -> int:
        count = self._transport.receive_into(buffer)
        if not count and not self._tells_end:
            self._has_ended = True
            raise BlockingIOError
        return count

    async def wait_readable(self) -> None:
        if self._has_ended:
            await trio.sleep(_LATE_SECONDS)
            self._tells_end = True
        else:
            await self._transport.wait_readable()


class Stamp(Filter):
    """Writes for whom it takes the client."""

    @response_hook(MetadataResponse)
    async def write(self, response: MetadataResponse, call: Call) -> MetadataResponse:
        response.cluster_id = call.client.principal
        return response


class StampOfBob(Filter):
    """Sees bob's messages alone, after `Stamp` has seen them."""

    @response_hook(MetadataResponse)
    async def write(self, response: MetadataResponse, call: Call) -> MetadataResponse:
        response.cluster_id = f"{response.cluster_id}, filtered"
        return response


FILTERS: Final = (
    Named("bob's", StampOfBob(), Scope(principals=re.compile("User:bob"))),
    Named("everybody's", Stamp()),
)


class LateWays(Ways):
    """Other ways, on which the ends of connections to upstream arrive late."""

    def __init__(self, ways: Ways) -> None:
        self._ways = ways

    @property
    def asks_clients(self) -> bool:
        return self._ways.asks_clients

    @property
    def security(self) -> Security:
        return self._ways.security

    async def accept(self, accepted: socket.socket) -> Accepted:
        return await self._ways.accept(accepted)

    async def connect(self, host: str, port: int) -> Transport:
        return LateEnd(await self._ways.connect(host, port))


@asynccontextmanager
async def opened(serve_node: Callable[..., Any], kind: str, folder: str) -> AsyncIterator[Door]:
    """The door of this kind: the broker's own, a proxy's that passes logins on, or one that has logins of its own."""
    async with serve_node(BROKER) as node:
        topic_ids = await _furnish(node)
        if kind == "broker":
            yield Door(kind, node.port, topic_ids)
            return
        is_own = kind == "proxy with logins of its own"
        ways: Ways = Securities(_LISTEN, _UPSTREAM) if is_own else PLAIN_WAYS
        async with _proxy(node, ways, folder) as port:
            # What she reads is kept, and she may read it for as long as the test lasts.
            await read(port, "alice", topic_ids["secret"])
            yield Door(kind, port, topic_ids, has_rights=not is_own, is_stamped=True)


@asynccontextmanager
async def _proxy(node: RunningNode, ways: Ways, folder: str) -> AsyncIterator[int]:
    """The port of a proxy that leads to the one broker."""
    settings = Settings(
        [(HOST, node.port)], (HOST, 0), cache=CacheSettings(64 << 20, folder, re.compile("secret|public"))
    )

    proxy = Proxy(settings, FILTERS, LateWays(ways))
    async with trio.open_nursery() as nursery:
        ready = await nursery.start(proxy.serve)
        try:
            # A user who may see the brokers learns their ports.
            client = await logged_in(ready.port, "alice")
            (broker,) = (await client.call(MetadataRequest(topics=[]), 12)).brokers
            await client.stream.aclose()
            yield broker.port
        finally:
            proxy.stop()
    assert_nothing_held(proxy)


async def _furnish(node: RunningNode) -> dict[str, UUID]:
    """Users, topics, rights, and a record in each topic."""
    controller = node.broker.controller
    for user, password in PASSWORDS.items():
        made = credential(user, password, SCRAM)
        upsertion = ScramUpsertion(user, made.mechanism, made.iterations, made.salt, made.salted_password)
        assert await controller.alter_scram_credentials([], [upsertion]) == {user: None}
    topic_ids = {}
    admin = await logged_in(node.port, "admin", _ADMIN)
    for user, name in TOPICS.items():
        topic_ids[name] = await node.create_topic(name)
        may = (AclOperation.READ, AclPermission.ALLOW)
        await controller.create_acls([Acl(AclResource.TOPIC, name, AclPattern.LITERAL, f"User:{user}", "*", *may)])
        data = PartitionProduceData(index=0, records=build_batch([Record(value=name.encode())]))
        request = ProduceRequest(
            acks=1, timeout_ms=5000, topic_data=[TopicProduceData(name=name, partition_data=[data])]
        )
        answer = await admin.call(request, 9)
        assert answer.responses[0].partition_responses[0].error_code == 0
    await admin.stream.aclose()
    return topic_ids


async def logged_in(port: int, user: str, password: str | None = None) -> Client:
    """A client that has waited for every answer."""
    client = Client(await trio.open_tcp_stream(HOST, port))
    await client.call(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 3)
    assert (await client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)).error_code == 0
    message = sasl.begin("PLAIN", user, PASSWORDS.get(user, "") if password is None else password).step(b"")
    assert (await client.call(SaslAuthenticateRequest(auth_bytes=message), 2)).error_code == 0
    return client


async def read(port: int, user: str, topic_id: UUID) -> bytes:
    """What an honest reader gets of a topic."""
    client = await logged_in(port, user)
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic_id=topic_id, partitions=[partition])])
    answer = await client.call(request, 16)
    await client.stream.aclose()
    return bytes(answer.responses[0].partitions[0].records or b"")
