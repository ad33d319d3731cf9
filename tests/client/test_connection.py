"""The blocking connection, against a peer that does what the test says; tests/cli has it with brokers."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from ottla.client.connection import BrokerConnection
from ottla.client.errors import (
    ConnectionLostError,
    RequestTimedOutError,
    UnexpectedAnswerError,
    UnreachableError,
    UnsupportedVersionError,
)
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.messages.groups.heartbeat import HeartbeatRequest
from ottla.kproto.messages.topics.metadata import MetadataRequest
from ottla.kproto.versions import VersionRange
from tests.client.brokers import BrokerSide, Received, beat, versions

HEARTBEAT = HeartbeatRequest(group_id="g", member_id="m")
Answer = Callable[[Received], bytes]


@contextmanager
def answering(answer: Answer) -> Iterator[int]:
    """A peer that takes one connection and answers each request as told: with nothing it hangs up. Yields its port."""

    def serve() -> None:
        peer, _ = server.accept()
        with peer:
            side = BrokerSide()
            while data := peer.recv(65536):
                for request in side.feed([data]):
                    found = answer(request)
                    if not found:
                        return
                    peer.sendall(found)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
        thread.join()


def broker(other: Answer) -> Answer:
    """Answers ApiVersions, and the rest as told."""
    return lambda request: versions(request) if request.key is ApiKey.API_VERSIONS else other(request)


def test_calls_and_requests_sent_ahead() -> None:
    with answering(broker(lambda request: beat(request, request.header.correlation_id))) as port:
        connection = BrokerConnection("127.0.0.1", port, 10)
        assert connection.call(HEARTBEAT).throttle_time_ms == 2
        for _ in range(3):
            connection.send(HEARTBEAT)
        assert [connection.receive().throttle_time_ms for _ in range(3)] == [3, 4, 5]
        connection.close()
        with pytest.raises(ConnectionLostError, match=f"the connection to 127.0.0.1:{port} is closed"):
            connection.call(HEARTBEAT)


def test_nobody_listens() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        with pytest.raises(UnreachableError, match=rf"no broker answers at 127.0.0.1:{port} \(Connection refused\)"):
            BrokerConnection("127.0.0.1", port, 10)


def test_the_peer_hangs_up() -> None:
    with answering(broker(lambda _: b"")) as port:
        connection = BrokerConnection("127.0.0.1", port, 10)
        with pytest.raises(ConnectionLostError, match="closed the connection"):
            connection.call(HEARTBEAT)
        with pytest.raises(ConnectionLostError, match="closed the connection"):
            connection.call(HEARTBEAT)


def test_the_peer_is_no_broker() -> None:
    with (
        answering(lambda _: b"HTTP/1.1 400 Bad Request\r\n\r\n") as port,
        pytest.raises(UnexpectedAnswerError, match=f"127.0.0.1:{port} does not speak Kafka's protocol"),
    ):
        BrokerConnection("127.0.0.1", port, 10)


def test_no_answer_in_time_closes_the_connection() -> None:
    release = threading.Event()

    def late(request: Received) -> bytes:
        release.wait()
        return b""

    with answering(broker(late)) as port:
        connection = BrokerConnection("127.0.0.1", port, 10, answer_timeout_seconds=0.05)
        with pytest.raises(RequestTimedOutError, match="did not answer Heartbeat in time"):
            connection.call(HEARTBEAT)
        with pytest.raises(ConnectionLostError, match="did not answer Heartbeat in time"):
            connection.call(HEARTBEAT)
        release.set()


def test_a_version_that_is_not_served_leaves_the_connection_open() -> None:
    def old(request: Received) -> bytes:
        if request.key is ApiKey.API_VERSIONS:
            return versions(request, {ApiKey.HEARTBEAT: VersionRange(0, 1)})
        return beat(request, request.version)

    with answering(old) as port:
        connection = BrokerConnection("127.0.0.1", port, 10)
        with pytest.raises(UnsupportedVersionError, match="does not serve Metadata"):
            connection.call(MetadataRequest())
        assert connection.call(HEARTBEAT).throttle_time_ms == 1
        connection.close()
