"""The connection on Trio: many tasks, one stream, and every moment at which a call, the peer or the owner may go."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any
from uuid import UUID

import pytest
import trio
import trio.testing

from ottla.client.errors import (
    ConnectionLostError,
    RequestTimedOutError,
    UnexpectedAnswerError,
    UnreachableError,
    UnsupportedVersionError,
)
from ottla.client.security import Login, Security
from ottla.client.trio_connection import TrioConnection
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.framing import frame_prefix
from ottla.kproto.messages.access.sasl_authenticate import SaslAuthenticateResponse
from ottla.kproto.messages.access.sasl_handshake import SaslHandshakeResponse
from ottla.kproto.messages.data.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.kproto.messages.data.produce import ProduceRequest
from ottla.kproto.messages.groups.heartbeat import HeartbeatRequest
from ottla.kproto.messages.topics.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.kproto.versions import VersionRange
from tests.client.brokers import BrokerSide, Received, answer, beat, versions

PLAIN = Login("PLAIN", "alice", "wonder")
HEARTBEAT = HeartbeatRequest(group_id="g", member_id="m")


def numbered(number: int) -> HeartbeatRequest:
    return HeartbeatRequest(group_id="g", member_id="m", generation_id=number)


def number_of(received: Received) -> int:
    assert isinstance(received.request, HeartbeatRequest)
    return received.request.generation_id


class Peer:
    """The other end of a connection in memory, which answers when the test says so."""

    def __init__(self, session_lifetime_ms: int = 0) -> None:
        """With a lifetime, clients have to log in."""
        self.ours, self.stream = trio.testing.memory_stream_pair()
        self._session_lifetime_ms = session_lifetime_ms
        self.received: list[Received] = []
        self._side = BrokerSide()

    async def open_stream(self) -> trio.abc.Stream:
        return self.ours

    async def request(self) -> Received:
        """The next request."""
        while not self.received:
            data = await self.stream.receive_some(65536)
            assert data, "the client hung up"
            self.received += self._side.feed([bytes(data)])
        return self.received.pop(0)

    async def has_more(self) -> bool:
        """Whether another request comes, once everybody has done what they can."""
        with trio.move_on_after(0) as scope:
            await trio.testing.wait_all_tasks_blocked()
            self.received.append(await self.request())
        return not scope.cancelled_caught

    def block(self) -> trio.Event:
        """Take nothing that the client sends until the event is set."""
        unblock, deliver = trio.Event(), self.ours.send_stream.send_all_hook
        assert deliver is not None

        async def wait() -> None:
            await unblock.wait()
            await deliver()

        self.ours.send_stream.send_all_hook = wait
        return unblock

    async def negotiate(self) -> None:
        await self.stream.send_all(versions(await self.request()))
        if self._session_lifetime_ms:
            handshaken = SaslHandshakeResponse(mechanisms=[PLAIN.mechanism])
            await self.stream.send_all(answer(await self.request(), handshaken))
            let_in = SaslAuthenticateResponse(session_lifetime_ms=self._session_lifetime_ms)
            await self.stream.send_all(answer(await self.request(), let_in))

    async def beat(self, *requests: Received) -> None:
        """Answer heartbeats with their numbers."""
        await self.stream.send_all(b"".join(beat(request, number_of(request)) for request in requests))


@asynccontextmanager
async def connected(peer: Peer | None = None, **options: Any) -> AsyncIterator[tuple[TrioConnection, Peer]]:
    """A connection whose owner ends it after the test, and its peer."""
    peer = peer or Peer()
    connection = TrioConnection("peer", 9092, client_id="tester", open_stream=peer.open_stream, **options)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(peer.negotiate)
        await nursery.start(connection.run)
        try:
            yield connection, peer
        finally:
            connection.close()


class Calls:
    """Calls in tasks of their own, and what became of them."""

    def __init__(self, nursery: trio.Nursery, connection: TrioConnection) -> None:
        self.results: dict[int, Any] = {}
        self._nursery = nursery
        self._connection = connection

    async def start(self, number: int, **options: Any) -> trio.CancelScope:
        """Call with a number, and wait until the call waits; its scope."""
        scope = trio.CancelScope()
        self._nursery.start_soon(self._call, number, scope, options)
        await trio.testing.wait_all_tasks_blocked()
        return scope

    async def _call(self, number: int, scope: trio.CancelScope, options: dict[str, Any]) -> None:
        with scope:
            try:
                answer = await self._connection.call(numbered(number), **options)
                self.results[number] = answer.throttle_time_ms
            except ConnectionLostError as error:
                self.results[number] = error
        if scope.cancelled_caught:
            self.results[number] = "cancelled"


@asynccontextmanager
async def calling(**options: Any) -> AsyncIterator[tuple[Calls, TrioConnection, Peer]]:
    async with connected(**options) as (connection, peer), trio.open_nursery() as nursery:
        yield Calls(nursery, connection), connection, peer


class TestCalls:
    async def test_many_are_in_flight_and_each_gets_its_own_answer(self) -> None:
        async with calling() as (calls, _, peer):
            for number in range(5):
                await calls.start(number)
            requests = [await peer.request() for _ in range(5)]
            assert calls.results == {}
            await peer.beat(*requests[:2])
            await trio.testing.wait_all_tasks_blocked()
            assert calls.results == {0: 0, 1: 1}
            await peer.beat(*requests[2:])
        assert calls.results == {number: number for number in range(5)}

    async def test_what_cannot_be_sent_harms_nobody(self) -> None:
        peer = Peer()
        served = {ApiKey.HEARTBEAT: VersionRange(0, 4)}

        async def negotiate() -> None:
            await peer.stream.send_all(versions(await peer.request(), served))

        peer.negotiate = negotiate  # type: ignore[method-assign]
        async with connected(peer) as (connection, _):
            with pytest.raises(UnsupportedVersionError):
                await connection.call(MetadataRequest())
            assert connection.is_open

    async def test_produce_without_acknowledgement_ends_when_it_is_sent(self) -> None:
        async with connected() as (connection, peer):
            assert await connection.call(ProduceRequest(acks=0, topic_data=[])) is None
            assert (await peer.request()).key is ApiKey.PRODUCE

    async def test_who_has_no_place_waits_for_one_in_turn(self) -> None:
        async with calling(max_in_flight=2) as (calls, _, peer):
            for number in range(4):
                await calls.start(number)
            first, second = await peer.request(), await peer.request()
            assert not await peer.has_more()
            await peer.beat(first)
            third = await peer.request()
            assert number_of(third) == 2
            assert not await peer.has_more()
            await peer.beat(second, third)
            await peer.beat(await peer.request())
        assert calls.results == {0: 0, 1: 1, 2: 2, 3: 3}


class TestCancelledCalls:
    async def test_while_waiting_for_a_place_sends_nothing(self) -> None:
        async with calling(max_in_flight=1) as (calls, _, peer):
            await calls.start(0)
            scope = await calls.start(1)
            await calls.start(2)
            scope.cancel()
            await peer.beat(await peer.request())
            last = await peer.request()
            assert number_of(last) == 2
            await peer.beat(last)
        assert calls.results == {0: 0, 1: "cancelled", 2: 2}

    async def test_before_it_begins_sends_nothing(self) -> None:
        async with connected() as (connection, peer):
            with trio.CancelScope() as scope:
                scope.cancel()
                await connection.call(numbered(1))
            assert scope.cancelled_caught
            assert not await peer.has_more()

    async def test_in_the_queue_sends_nothing(self) -> None:
        async with calling() as (calls, _, peer):
            unblock = peer.block()
            for number in range(3):
                scope = await calls.start(number)
                if number == 1:
                    scope.cancel()
            unblock.set()
            first, second = await peer.request(), await peer.request()
            assert (number_of(first), number_of(second)) == (0, 2)
            await peer.beat(first, second)
        assert calls.results == {0: 0, 1: "cancelled", 2: 2}

    async def test_while_waiting_for_the_answer_keeps_its_place_until_that_comes(self) -> None:
        async with calling(max_in_flight=1) as (calls, _, peer):
            scope = await calls.start(0)
            abandoned = await peer.request()
            scope.cancel()
            await calls.start(1)
            assert not await peer.has_more()
            await peer.beat(abandoned)
            await peer.beat(await peer.request())
        assert calls.results == {0: "cancelled", 1: 1}

    @pytest.mark.parametrize("seed", range(20))
    async def test_never_mix_up_answers(self, seed: int, autojump_clock: trio.testing.MockClock) -> None:
        random = Random(seed)
        outcomes: dict[int, str] = {}

        async def answer_all(peer: Peer) -> None:
            while True:
                request = await peer.request()
                await trio.sleep(random.random())
                await peer.beat(request)

        async def call(connection: TrioConnection, number: int) -> None:
            await trio.sleep(random.random() * 20)
            with trio.move_on_after(random.random() * 10):
                answer = await connection.call(numbered(number), timeout_seconds=1000)
                assert answer.throttle_time_ms == number
                outcomes[number] = "answered"
            outcomes.setdefault(number, "cancelled")

        async with connected(max_in_flight=4) as (connection, peer), trio.open_nursery() as nursery:
            nursery.start_soon(answer_all, peer)
            async with trio.open_nursery() as callers:
                for number in range(60):
                    callers.start_soon(call, connection, number)
            assert (await connection.call(numbered(99))).throttle_time_ms == 99
            nursery.cancel_scope.cancel()
        assert set(outcomes.values()) == {"answered", "cancelled"}


class TestDeadlines:
    async def test_a_late_answer_ends_the_connection(self, autojump_clock: trio.testing.MockClock) -> None:
        async with calling(timeout_seconds=30) as (calls, connection, _):
            started = trio.current_time()
            await calls.start(0)
            await calls.start(1, timeout_seconds=5)
            await trio.sleep(10)
            assert not connection.is_open
            assert trio.current_time() - started == 10
            with pytest.raises(ConnectionLostError, match="did not answer Heartbeat in time"):
                await connection.call(HEARTBEAT)
        assert isinstance(calls.results[1], RequestTimedOutError)
        assert not isinstance(calls.results[0], RequestTimedOutError)
        assert "did not answer Heartbeat in time" in str(calls.results[0])

    async def test_a_request_whose_caller_has_gone_has_its_deadline_all_the_same(
        self, autojump_clock: trio.testing.MockClock
    ) -> None:
        async with calling(timeout_seconds=30) as (calls, connection, _):
            (await calls.start(0)).cancel()
            await trio.sleep(29)
            assert connection.is_open
            await trio.sleep(2)
            assert not connection.is_open

    async def test_answers_in_time_end_nothing(self, autojump_clock: trio.testing.MockClock) -> None:
        async with calling(timeout_seconds=30) as (calls, connection, peer):
            for number in range(5):
                await calls.start(number)
                await trio.sleep(20)
                await peer.beat(await peer.request())
            await trio.sleep(1000)
            assert connection.is_open
        assert calls.results == {number: number for number in range(5)}

    async def test_a_peer_that_does_not_read(self, autojump_clock: trio.testing.MockClock) -> None:
        async with calling(timeout_seconds=30) as (calls, connection, peer):
            peer.block()
            await calls.start(0)
            await calls.start(1)
            await trio.sleep(31)
            assert not connection.is_open
        assert {type(result) for result in calls.results.values()} == {RequestTimedOutError}


class TestEnds:
    async def test_the_peer_hangs_up(self) -> None:
        async with calling(max_in_flight=1) as (calls, connection, peer):
            await calls.start(0)
            await calls.start(1)
            await peer.stream.aclose()
            await trio.testing.wait_all_tasks_blocked()
            assert {str(result) for result in calls.results.values()} == {
                "the broker at peer:9092 closed the connection"
            }
            assert len(calls.results) == 2
            assert not connection.is_open

    async def test_the_peer_hangs_up_as_a_call_is_about_to_be_sent(
        self, autojump_clock: trio.testing.MockClock
    ) -> None:
        # Whether the sender or the receiver runs first is chance: in twenty connections each of them has been.
        for _ in range(20):
            async with connected() as (connection, peer):
                await trio.testing.wait_all_tasks_blocked()
                peer.stream.send_stream.close()
                with pytest.raises(ConnectionLostError, match="closed the connection"):
                    await connection.call(HEARTBEAT)
        assert trio.current_time() < 1, "a call waited for its deadline"

    async def test_the_peer_begins_no_new_session(self, mock_clock: trio.testing.MockClock) -> None:
        peer = Peer(session_lifetime_ms=5000)
        async with calling(peer=peer, security=Security(PLAIN), timeout_seconds=30) as (calls, connection, _):
            mock_clock.jump(5)
            await calls.start(0, timeout_seconds=1000)
            assert (await peer.request()).key is ApiKey.SASL_HANDSHAKE
            mock_clock.jump(31)
            await trio.testing.wait_all_tasks_blocked()
            assert not connection.is_open
            assert str(calls.results[0]) == "the broker at peer:9092 did not begin a new session in time"

    async def test_the_owner_ends_it(self) -> None:
        async with calling(max_in_flight=1) as (calls, connection, peer):
            await calls.start(0)
            await calls.start(1)
            connection.close()
            await trio.testing.wait_all_tasks_blocked()
            for number in range(2):
                assert str(calls.results[number]) == "the connection to peer:9092 is closed"
            await peer.request()
            assert await peer.stream.receive_some() == b""

    async def test_the_owner_is_cancelled(self) -> None:
        peer = Peer()
        connection = TrioConnection("peer", 9092, client_id="tester", open_stream=peer.open_stream)
        async with trio.open_nursery() as outer:
            calls = Calls(outer, connection)
            async with trio.open_nursery() as owner:
                owner.start_soon(peer.negotiate)
                await owner.start(connection.run)
                await calls.start(0)
                owner.cancel_scope.cancel()
        assert isinstance(calls.results[0], ConnectionLostError)

    @pytest.mark.parametrize(
        "data", [b"\xff\xff\xff\xff", frame_prefix(4) + b"\0\0\0\x63", frame_prefix(6) + b"\0\0\0\2\0\0"]
    )
    async def test_an_answer_that_is_none(self, data: bytes) -> None:
        async with calling() as (calls, connection, peer):
            await calls.start(0)
            await calls.start(1)
            await peer.stream.send_all(data)
            await trio.testing.wait_all_tasks_blocked()
            assert not connection.is_open
        assert all(isinstance(result, ConnectionLostError) for result in calls.results.values())


class TestStart:
    async def run(self, **options: Any) -> None:
        await TrioConnection("127.0.0.1", 1, client_id="tester", timeout_seconds=5, **options).run()

    async def test_nobody_listens(self) -> None:
        with pytest.raises(UnreachableError, match=r"no broker answers at 127.0.0.1:1 \(Connection refused\)"):
            await self.run()

    async def test_connecting_takes_too_long(self, autojump_clock: trio.testing.MockClock) -> None:
        with pytest.raises(UnreachableError, match="not within 5 s"):
            await self.run(open_stream=trio.sleep_forever)

    async def test_versions_are_not_answered(self, autojump_clock: trio.testing.MockClock) -> None:
        with pytest.raises(RequestTimedOutError, match="did not answer ApiVersions in time"):
            await self.run(open_stream=Peer().open_stream)

    async def test_the_peer_is_no_broker(self) -> None:
        peer = Peer()
        await peer.stream.send_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        with pytest.raises(UnexpectedAnswerError, match="does not speak Kafka's protocol"):
            await self.run(open_stream=peer.open_stream)

    async def test_the_owner_ends_it_before_it_is_open(self) -> None:
        connection = TrioConnection("peer", 9092, client_id="tester", open_stream=Peer().open_stream)

        async def close() -> None:
            await trio.testing.wait_all_tasks_blocked()
            connection.close()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(close)
            with pytest.raises(ConnectionLostError, match="closed before it was made"):
                await nursery.start(connection.run)


async def test_others_run_while_a_large_answer_is_parsed() -> None:
    topics = [
        MetadataResponseTopic(name=f"t{it}", topic_id=UUID(int=it), partitions=[MetadataResponsePartition()] * 4)
        for it in range(2_000)
    ]
    large = MetadataResponse(topics=topics)
    found: list[Any] = []
    turns: list[int] = []

    async with connected() as (connection, peer), trio.open_nursery() as nursery:

        async def call() -> None:
            found.append(await connection.call(MetadataRequest(topics=None)))

        async def count() -> None:
            while not found:
                turns.append(len(connection._in_flight))
                await trio.lowlevel.checkpoint()

        nursery.start_soon(call)
        request = await peer.request()
        nursery.start_soon(count)
        await peer.stream.send_all(answer(request, large))
    assert found == [large]
    assert turns.count(0) > 20  # turns of the other task behind the answer's arrival


async def test_an_answer_that_is_large_and_none_ends_the_connection() -> None:
    async with connected() as (connection, peer), trio.open_nursery() as nursery:

        async def call() -> None:
            with pytest.raises(UnexpectedAnswerError, match="answered Metadata with something that is not an answer"):
                await connection.call(MetadataRequest(topics=None))

        nursery.start_soon(call)
        request = await peer.request()
        good = answer(request, MetadataResponse(topics=[MetadataResponseTopic(name="t" * 20_000)]))
        await peer.stream.send_all(frame_prefix(len(good) - 4 + 1) + good[4:] + b"x")


async def test_an_error_is_told_although_the_connection_is_being_closed() -> None:
    """A mistake of the connection's own must not vanish with it."""
    peer = Peer()
    connection = TrioConnection("peer", 9092, client_id="tester", open_stream=peer.open_stream)

    async def fail() -> None:
        if connection.is_open:
            connection.close()
            raise ZeroDivisionError

    peer.ours.receive_stream.receive_some_hook = fail
    with pytest.RaisesGroup(ZeroDivisionError, flatten_subgroups=True, allow_unwrapped=True):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(peer.negotiate)
            await connection.run()
    await connection.wait_closed()


async def test_against_a_broker(serve_node: Callable[..., Any]) -> None:
    async with serve_node() as node, trio.open_nursery() as nursery:
        topic_id = await node.create_topic("t", partitions=2)
        connection = TrioConnection("127.0.0.1", node.port, client_id="tester")
        await nursery.start(connection.run)
        waiting = FetchRequest(
            max_wait_ms=50,
            min_bytes=1,
            session_epoch=-1,
            topics=[
                FetchTopic(
                    topic="t",
                    topic_id=topic_id,
                    partitions=[FetchPartition(partition=1, fetch_offset=0, partition_max_bytes=1000)],
                )
            ],
        )
        answers: list[Any] = []

        async def call(request: Any) -> None:
            answers.append(await connection.call(request))

        async with trio.open_nursery() as callers:
            callers.start_soon(call, waiting)
            await trio.testing.wait_all_tasks_blocked(0.01)
            for name in ("t", "u"):
                callers.start_soon(call, MetadataRequest(topics=[MetadataRequestTopic(name=name)]))
        fetched, *described = answers
        assert fetched.responses[0].topic_id == topic_id
        assert {answer.topics[0].name: len(answer.topics[0].partitions) for answer in described}["t"] == 2
        connection.close()
