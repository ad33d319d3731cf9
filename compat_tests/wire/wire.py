"""Connections that speak Kafka's protocol request by request, for what no client library lets one send."""

from __future__ import annotations

import socket
import time
from collections import deque
from collections.abc import Sequence
from contextlib import closing
from typing import Any, Final

from compat_tests.wire.wire_routes import Address, Router
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.frames import build_request_frame, parse_response_frame
from ottla.kproto.framing import PREFIX_SIZE, frame_size
from ottla.kproto.messages.data.produce import ProduceRequest
from ottla.kproto.messages.groups.list_groups import ListGroupsRequest
from ottla.kproto.messages.topics.metadata import MetadataRequest, MetadataRequestTopic
from ottla.kproto.messages.transactions.list_transactions import ListTransactionsRequest

_MAX_ANSWER_BYTES: Final = 256 * 1024 * 1024

#: What every node answers for itself alone, and the list that together they answer.
_ASKED_OF_ALL: Final[dict[type[Any], str]] = {
    ListGroupsRequest: "groups",
    ListTransactionsRequest: "transaction_states",
}


class WireConnection:
    """One connection to one broker, which sends whatever it is told to."""

    def __init__(self, address: Address, client_id: str = "wire") -> None:
        self._client_id = client_id
        self._socket = socket.create_connection(address, timeout=120)
        self._correlation_id = 0
        self._awaited: deque[int] = deque()

    def close(self) -> None:
        self._socket.close()

    def call(self, request: Any, version: int) -> Any:
        self.send(request, version)
        return self.receive(request.API_KEY, version)

    def send(self, request: Any, version: int) -> bool:
        """Whether there will be an answer: there is none to a produce request without acknowledgement."""
        is_answered = not (isinstance(request, ProduceRequest) and request.acks == 0)
        self._socket.sendall(self._frame(request, version, is_answered=is_answered))
        return is_answered

    def send_together(self, requests: Sequence[tuple[Any, int]]) -> None:
        self._socket.sendall(b"".join(self._frame(*request, is_answered=True) for request in requests))

    def _frame(self, request: Any, version: int, *, is_answered: bool) -> bytes:
        self._correlation_id += 1
        if is_answered:
            self._awaited.append(self._correlation_id)
        return build_request_frame(request, version, self._correlation_id, self._client_id)

    def receive(self, key: ApiKey, version: int) -> Any:
        size = frame_size(self._read(PREFIX_SIZE), _MAX_ANSWER_BYTES)
        correlation_id, answer = parse_response_frame(key, version, self._read(size))
        assert correlation_id == self._awaited.popleft()
        return answer

    def is_closed_by_broker(self) -> bool:
        self._socket.settimeout(120)
        return self._socket.recv(1) == b""

    def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            piece = self._socket.recv(size - len(data))
            if not piece:
                raise EOFError("the broker closed the connection")
            data += piece
        return bytes(data)


class Wire:
    """A connection to a broker; with several nodes one to each that is asked something, as `wire_routes` says.

    Requests may be sent before the answers to earlier ones are received; they are received in their order.
    """

    def __init__(self, bootstrap: str, client_id: str = "wire") -> None:
        self.bootstrap = bootstrap
        self._client_id = client_id
        addresses = [_address(text) for text in bootstrap.split(",")]
        # The last of several: the first node is most often the controller, too.
        self._home = addresses[-1]
        self._connections = {self._home: WireConnection(self._home, client_id)}
        self._asked_last = self._connections[self._home]
        self._order: deque[WireConnection] = deque()
        self._addresses = addresses
        self._router = Router(self._home, WireConnection) if len(addresses) > 1 else None

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        if self._router is not None:
            self._router.close()

    def call(self, request: Any, version: int) -> Any:
        merged = _ASKED_OF_ALL.get(type(request))
        if merged is None or self._router is None:
            self.send(request, version)
            answer = self.receive(request.API_KEY, version)
            if self._router is not None:
                self._router.settle(request, answer, self._nodes)
            return answer
        answers = [node.call(request, version) for node in self._nodes]
        setattr(answers[0], merged, [each for answer in answers for each in getattr(answer, merged)])
        return answers[0]

    def send(self, request: Any, version: int) -> None:
        address = self._home
        if self._router is not None:
            request = self._router.placed(request)
            address = self._router.address_for(request)
        self._asked_last = self._connection(address)
        if self._asked_last.send(request, version):
            self._order.append(self._asked_last)

    def send_together(self, *requests: tuple[Any, int]) -> None:
        """To the one node that all of these requests are for, in one piece: it has all when it looks at the first."""
        addresses = {self._router.address_for(request) if self._router else self._home for request, _ in requests}
        (address,) = addresses
        self._asked_last = self._connection(address)
        self._asked_last.send_together(requests)
        self._order.extend([self._asked_last] * len(requests))

    def receive(self, key: ApiKey, version: int) -> Any:
        return self._order.popleft().receive(key, version)

    def is_closed_by_broker(self) -> bool:
        return self._asked_last.is_closed_by_broker()

    @property
    def _nodes(self) -> list[WireConnection]:
        """A connection to each node: nothing is in flight on them while a call is made."""
        return [self._connection(address) for address in self._addresses]

    def _connection(self, address: Address) -> WireConnection:
        if address not in self._connections:
            self._connections[address] = WireConnection(address, self._client_id)
        return self._connections[address]


def until_all_know(bootstrap: str, topic: str, *, partitions: int) -> None:
    """Wait until every node names so many partitions of a topic: a producer may ask any of them, and asks once."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    deadline = time.monotonic() + 120
    for text in bootstrap.split(","):
        with closing(WireConnection(_address(text))) as node:
            while len(node.call(request, 12).topics[0].partitions) != partitions:
                assert time.monotonic() < deadline
                time.sleep(0.01)


def _address(text: str) -> Address:
    host, _, port = text.rpartition(":")
    return host, int(port)
