"""A small blocking client: one connection a broker, one request at a time. It speaks to any Kafka broker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ottla.client.connection import CLIENT_ID, BrokerConnection
from ottla.client.errors import BrokerError, ClientError, ConnectionLostError, UnknownTopicError
from ottla.client.security import NO_SECURITY, Security
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.topics.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from ottla.kproto.schema import Request


class Client:
    """A cluster as its programs see it. Use as a context manager."""

    def __init__(
        self,
        bootstrap: Sequence[tuple[str, int]],
        timeout_seconds: float = 30,
        client_id: str = CLIENT_ID,
        *,
        security: Security = NO_SECURITY,
    ) -> None:
        self._security = security
        self._bootstrap = bootstrap
        self._client_id = client_id
        self._timeout_seconds = timeout_seconds
        self._any: BrokerConnection | None = None
        self._connections: dict[tuple[str, int], BrokerConnection] = {}
        self._addresses: dict[int, tuple[str, int]] = {}
        self._controller_id = -1

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self._connections.values():
            connection.close()

    def call(self, request: Request, *, at_most: int = 32767) -> Any:
        """Ask any broker."""
        return self.any_broker().call(request, at_most=at_most)

    def call_controller(self, request: Request) -> Any:
        """Ask the broker that Metadata names as controller."""
        return self.controller().call(request)

    def controller(self) -> BrokerConnection:
        """The broker that Metadata names as controller, any broker if it names none that is there."""
        self.metadata([])
        if self._controller_id not in self._addresses:
            return self.any_broker()
        return self.broker(self._controller_id)

    def any_broker(self) -> BrokerConnection:
        """The first bootstrap address that answers."""
        if self._any is None:
            for index, address in enumerate(self._bootstrap):
                try:
                    self._any = self._connect(address)
                    break
                except ConnectionLostError:
                    if index == len(self._bootstrap) - 1:
                        raise
        assert self._any is not None
        return self._any

    def broker(self, node_id: int) -> BrokerConnection:
        """The broker with this id, as the last Metadata knows it."""
        address = self._addresses.get(node_id)
        if address is None:
            raise ClientError(f"there is no broker {node_id} in the cluster now: try again")
        return self._connect(address)

    def metadata(self, topics: Sequence[str] | None, *, create: bool = False) -> MetadataResponse:
        """Metadata of some topics, of none, or of all (None)."""
        named = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        response: MetadataResponse = self.call(MetadataRequest(topics=named, allow_auto_topic_creation=create))
        self._addresses = {broker.node_id: (broker.host, broker.port) for broker in response.brokers}
        self._controller_id = response.controller_id
        return response

    def topic(self, name: str, *, create: bool = False) -> MetadataResponseTopic:
        """Metadata of one topic; UnknownTopicError if it does not exist. `create` lets the broker create it."""
        for _ in range(20 if create else 1):
            (topic,) = self.metadata([name], create=create).topics
            usable = topic.error_code == ErrorCode.NONE and all(p.leader_id >= 0 for p in topic.partitions)
            if usable or (not create and topic.error_code == ErrorCode.NONE):
                return topic
            if create and topic.error_code in (0, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                import time

                time.sleep(0.1)
                continue
            break
        if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise UnknownTopicError(name, nearest=self._nearest(name))
        raise BrokerError(topic.error_code, what=f"topic {name}")

    def _nearest(self, name: str) -> str | None:
        """The topic that may have been meant by one that does not exist."""
        from difflib import get_close_matches

        known = [topic.name or "" for topic in self.metadata(None).topics]
        return next(iter(get_close_matches(name, known, n=1)), None)

    def _connect(self, address: tuple[str, int]) -> BrokerConnection:
        connection = self._connections.get(address)
        if connection is None:
            connection = self._connections[address] = BrokerConnection(
                *address, self._timeout_seconds, self._client_id, security=self._security
            )
        return connection
