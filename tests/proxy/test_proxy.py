"""The proxy over TCP: addresses, order, limits, what upstream may do, and the end."""

from __future__ import annotations

import struct
from collections.abc import Callable
from random import Random
from typing import Any
from uuid import UUID

import pytest
import trio

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.kproto.frames import build_request_frame, parse_response_frame
from ottla.kproto.messages.cluster.api_versions import ApiVersionsRequest
from ottla.kproto.messages.cluster.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from ottla.kproto.messages.data.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    NodeEndpoint,
    PartitionData,
)
from ottla.kproto.messages.data.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.kproto.messages.groups.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from ottla.kproto.messages.groups.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.kproto.messages.topics.metadata import MetadataRequest
from ottla.kproto.schema import TaggedField
from ottla.kproto.versions import VersionRange
from ottla.proxy.errors import ProxyError
from ottla.proxy.proxy import Proxy
from ottla.proxy.shared import Settings
from tests.client.brokers import answer, beat
from tests.proxy.upstreams import Upstream, assert_nothing_held, until
from tests.servers import Client

Serve = Callable[..., Any]

HEARTBEAT = HeartbeatRequest(group_id="g", member_id="m")
THREE = {1: ("a", 9092), 2: ("b", 9093), 3: ("c", 9094)}


def produce(acks: int, size_bytes: int = 100) -> ProduceRequest:
    partition = PartitionProduceData(index=0, records=bytes(size_bytes))
    return ProduceRequest(acks=acks, topic_data=[TopicProduceData(name="t", partition_data=[partition])])


async def test_every_broker_has_a_port_here_and_metadata_names_it(serve_proxy: Serve) -> None:
    async with serve_proxy(Upstream(THREE)) as running:
        assert running.ready.brokers == 3
        brokers = (await running.call(MetadataRequest(topics=None), 12)).brokers
        assert [broker.node_id for broker in brokers] == [1, 2, 3]
        assert {broker.host for broker in brokers} == {"127.0.0.1"}
        assert len({broker.port for broker in brokers} | {running.ready.port}) == 4
        again = (await running.call(MetadataRequest(topics=None), 5)).brokers
        assert [broker.port for broker in again] == [broker.port for broker in brokers]


async def test_ports_follow_the_bootstrap_port_in_the_order_of_node_ids(serve_proxy: Serve) -> None:
    for _ in range(20):  # until a port is found whose successors are free, too
        listener = (await trio.open_tcp_listeners(0, host="127.0.0.1"))[0]
        first = listener.socket.getsockname()[1]
        await listener.aclose()
        upstream = Upstream({9: ("a", 1), 4: ("b", 2)})
        async with trio.open_nursery() as nursery:
            port = await nursery.start(upstream.run)
            proxy = Proxy(Settings([("127.0.0.1", port)], ("127.0.0.1", first)))
            await nursery.start(proxy.serve)
            ports = [proxy._listeners.brokers.port_of(4, "b", 2), proxy._listeners.brokers.port_of(9, "a", 1)]
            nursery.cancel_scope.cancel()
        if ports == [first + 1, first + 2]:
            return
    pytest.fail("no two ports in a row were free")


async def test_a_client_reaches_each_broker_by_its_port(serve_proxy: Serve) -> None:
    async with trio.open_nursery() as nursery:
        other = Upstream()
        other.handlers[ApiKey.HEARTBEAT] = lambda received: HeartbeatResponse(throttle_time_ms=7)
        other_port = await nursery.start(other.run)
        async with serve_proxy(Upstream({1: ("127.0.0.1", other_port)})) as running:
            broker = (await running.call(MetadataRequest(topics=[]), 12)).brokers[0]
            client = await running.connect(broker.port)
            assert (await client.call(HEARTBEAT, 4)).throttle_time_ms == 7
        nursery.cancel_scope.cancel()


async def test_a_broker_that_moves_keeps_its_port_and_a_new_one_gets_another(serve_proxy: Serve) -> None:
    upstream = Upstream()
    async with trio.open_nursery() as nursery:
        moved = Upstream()
        moved.handlers[ApiKey.HEARTBEAT] = lambda received: HeartbeatResponse(throttle_time_ms=8)
        moved_port = await nursery.start(moved.run)
        async with serve_proxy(upstream) as running:
            before = (await running.call(MetadataRequest(topics=[]), 12)).brokers
            upstream.brokers = {1: ("127.0.0.1", moved_port), 2: ("b", 1)}
            after = (await running.call(MetadataRequest(topics=[]), 12)).brokers
            assert after[0].port == before[0].port
            assert after[1].port not in (before[0].port, running.ready.port)
            client = await running.connect(after[0].port)
            assert (await client.call(HEARTBEAT, 4)).throttle_time_ms == 8
        nursery.cancel_scope.cancel()


async def test_all_answers_that_name_brokers_name_the_proxy(serve_proxy: Serve) -> None:
    upstream = Upstream(THREE)
    endpoint = NodeEndpoint(node_id=2, host="b", port=9093)
    upstream.handlers |= {
        ApiKey.FIND_COORDINATOR: lambda received: FindCoordinatorResponse(
            coordinators=[
                Coordinator(key="g", node_id=3, host="c", port=9094),
                Coordinator(key="x", node_id=-1, host="", port=-1, error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE),
            ]
        ),
        ApiKey.DESCRIBE_CLUSTER: lambda received: DescribeClusterResponse(
            cluster_id="c", brokers=[DescribeClusterBroker(broker_id=1, host="a", port=9092)]
        ),
        ApiKey.FETCH: lambda received: FetchResponse(node_endpoints=[endpoint]),
        ApiKey.PRODUCE: lambda received: ProduceResponse(node_endpoints=[endpoint]),  # type: ignore[list-item]
    }
    async with serve_proxy(upstream, advertise="proxy.example") as running:
        known = {it.node_id: ("proxy.example", it.port) for it in (await running.call(MetadataRequest(), 12)).brokers}
        assert {host for host, _ in known.values()} == {"proxy.example"}
        found, failed = (await running.call(FindCoordinatorRequest(coordinator_keys=["g"]), 6)).coordinators
        assert (found.host, found.port) == known[3]
        assert (failed.host, failed.port) == ("", -1)
        described = (await running.call(DescribeClusterRequest(), 2)).brokers[0]
        assert (described.host, described.port) == known[1]
        for request, version in ((FetchRequest(), 17), (produce(1), 12)):
            named = (await running.call(request, version)).node_endpoints[0]
            assert (named.host, named.port) == known[2]


@pytest.mark.parametrize("size_bytes", [65_000, 400_000, 3_000_001])
async def test_large_frames_pass_as_they_are(serve_proxy: Serve, size_bytes: int) -> None:
    records = Random(size_bytes).randbytes(size_bytes)
    partitions = [PartitionData(partition_index=it, records=records) for it in range(3)]
    fetched = FetchResponse(responses=[FetchableTopicResponse(topic_id=UUID(int=9), partitions=partitions)])
    upstream = Upstream()
    upstream.handlers |= {
        ApiKey.PRODUCE: lambda received: ProduceResponse(),
        ApiKey.FETCH: lambda received: fetched,
        ApiKey.HEARTBEAT: lambda received: HeartbeatResponse(throttle_time_ms=7),
    }
    produced = produce(1)
    produced.topic_data[0].partition_data[0].records = records
    async with serve_proxy(upstream) as running:
        client = await running.connect()
        for _ in range(2):
            await client.call(produced, 9)
            assert upstream.requests[-1].request == produced
            for version in (11, 17):
                fetched.responses[0].topic = "t" if version == 11 else ""
                found = await client.call(FetchRequest(), version)
                assert [bytes(it.records) for it in found.responses[0].partitions] == [records] * 3
            assert (await client.call(HEARTBEAT, 4)).throttle_time_ms == 7


async def test_a_client_that_leaves_in_the_middle_of_a_large_frame(serve_proxy: Serve) -> None:
    upstream = Upstream()
    upstream.by_hand = True
    async with serve_proxy(upstream) as running:
        upstream.handlers[ApiKey.PRODUCE] = lambda received: ProduceResponse()
        client = await running.connect()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.send, produce(1, 50_000_000), 9)
            connection = await upstream.connections.receive()
            await connection.stream.receive_some(1000)
            nursery.cancel_scope.cancel()
        await trio.aclose_forcefully(client.stream)
        await until(lambda: running.proxy._listeners.connection_count == 0)


async def test_versions_are_those_that_both_sides_know(serve_proxy: Serve) -> None:
    upstream = Upstream()
    upstream.served = {
        ApiKey.API_VERSIONS: VersionRange(0, 4),
        ApiKey.METADATA: VersionRange(0, 99),
        ApiKey.FETCH: VersionRange(0, 12),
        ApiKey.SASL_HANDSHAKE: VersionRange(0, 1),
        200: VersionRange(0, 1),  # type: ignore[dict-item]
    }
    async with serve_proxy(upstream) as running:
        request = ApiVersionsRequest(client_software_name="t", client_software_version="1")
        for version in range(5):
            listed = (await running.call(request, version)).api_keys
            assert {it.api_key: (it.min_version, it.max_version) for it in listed} == {
                18: (0, 4),
                3: (0, 13),
                1: (0, 12),
                17: (1, 1),
            }


async def test_an_unknown_version_of_apiversions_is_answered_in_version_0(serve_proxy: Serve) -> None:
    async with serve_proxy(Upstream()) as running:
        client = await running.connect()
        await client.send_frame(struct.pack(">hhih", 18, 9, 77, -1) + b"\0")
        correlation_id, response = parse_response_frame(ApiKey.API_VERSIONS, 0, await client.receive_frame())
        assert correlation_id == 77
        assert response.error_code == ErrorCode.UNSUPPORTED_VERSION  # type: ignore[attr-defined]
        assert await client.call(MetadataRequest(topics=[]), 12)


async def test_answers_come_in_order_also_those_of_the_proxy(serve_proxy: Serve) -> None:
    upstream = Upstream()
    async with serve_proxy(upstream) as running:
        upstream.by_hand = True
        client = await running.connect()
        first = await client.send(HEARTBEAT, 4)
        await client.send_frame(struct.pack(">hhih", 18, 9, 77, -1) + b"\0")
        second = await client.send(HEARTBEAT, 4)
        behind = await upstream.connections.receive()
        requests = [await behind.next(), await behind.next()]
        await behind.send(beat(requests[0]) + beat(requests[1]))
        frames = [await client.receive_frame() for _ in range(3)]
        assert [int.from_bytes(frame[:4], "big") for frame in frames] == [first, 77, second]


async def test_a_produce_without_acknowledgement_waits_for_no_answer(serve_proxy: Serve) -> None:
    upstream = Upstream()
    upstream.handlers[ApiKey.HEARTBEAT] = lambda received: HeartbeatResponse(throttle_time_ms=3)
    upstream.handlers[ApiKey.PRODUCE] = lambda received: None
    async with serve_proxy(upstream) as running:
        client = await running.connect()
        for version in (3, 9, 12):
            await client.send(produce(0), version)
            assert (await client.call(HEARTBEAT, 4)).throttle_time_ms == 3
        assert [it.version for it in upstream.requests if it.key is ApiKey.PRODUCE] == [3, 9, 12]


async def test_frames_of_any_size_go_through_as_they_are(serve_proxy: Serve) -> None:
    upstream = Upstream()
    answers: list[FetchResponse] = []

    def fetch(received: Any) -> FetchResponse:
        return answers.pop()

    upstream.handlers |= {ApiKey.PRODUCE: lambda received: ProduceResponse(), ApiKey.FETCH: fetch}
    async with serve_proxy(upstream) as running:
        client = await running.connect()
        for size_bytes in (0, 1, 70_000, 262_144, 3_000_000):
            await client.call(produce(1, size_bytes), 12)
            sent: Any = upstream.requests[-1].request
            assert len(sent.topic_data[0].partition_data[0].records) == size_bytes
            answers.append(fetched(bytes(range(256)) * (size_bytes // 256)))
            received = await client.call(FetchRequest(), 17)
            assert received.responses[0].partitions[0].records == bytes(range(256)) * (size_bytes // 256)


def fetched(records: bytes) -> FetchResponse:
    from ottla.kproto.messages.data.fetch import FetchableTopicResponse, PartitionData

    return FetchResponse(responses=[FetchableTopicResponse(partitions=[PartitionData(records=records)])])


async def test_a_slow_upstream_stops_the_reading_of_the_client(serve_proxy: Serve) -> None:
    upstream = Upstream()
    async with serve_proxy(upstream) as running:
        upstream.by_hand = True
        client = await running.connect()
        frame = build_request_frame(produce(1, 20_000), 12, 1, "c")
        for _ in range(5000):
            with trio.move_on_after(0.5) as scope:
                await client.stream.send_all(frame)
            if scope.cancelled_caught:
                break
        else:
            pytest.fail("the proxy takes 100 MB that upstream does not")
        await (await upstream.connections.receive()).next()  # it goes on as soon as upstream takes something


async def test_a_slow_client_stops_the_reading_of_upstream(serve_proxy: Serve) -> None:
    upstream = Upstream()
    async with serve_proxy(upstream) as running:
        upstream.by_hand = True
        client = await running.connect()
        for _ in range(200):
            await client.send(HEARTBEAT, 4)
        behind = await upstream.connections.receive()
        blocked = False
        for _ in range(200):
            received = await behind.next()
            large = answer(received, HeartbeatResponse(unknown_tagged_fields=(TaggedField(5, bytes(1_000_000)),)))
            with trio.move_on_after(0.5) as scope:
                await behind.send(large)
            if scope.cancelled_caught:
                blocked = True
                break
        assert blocked


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (struct.pack(">i", 200_000_000), "200000000 bytes"),
        (struct.pack(">i", -1), "-1 bytes"),
        (struct.pack(">i", 3) + b"abc", "no room for its header"),
        (struct.pack(">ihhi", 8, 999, 0, 1), "API 999 version 0"),
        (struct.pack(">ihhi", 8, 3, 14, 1), "API 3 version 14"),
        (struct.pack(">ihhi", 8, 17, 0, 1), "API 17 version 0"),
        (struct.pack(">ihhi", 8, 0, 9, 1), "cut off"),
        (b"GET / HTTP/1.1\r\n\r\n", "bytes"),
    ],
)
async def test_what_is_no_request_ends_its_connection_alone(
    serve_proxy: Serve, caplog: pytest.LogCaptureFixture, frame: bytes, reason: str
) -> None:
    upstream = Upstream()
    async with serve_proxy(upstream) as running:
        other = await running.connect()
        assert (await other.call(MetadataRequest(topics=[]), 12)).brokers
        client = await running.connect()
        await client.stream.send_all(frame)
        assert await client.is_closed()
        assert (await other.call(MetadataRequest(topics=[]), 12)).brokers
        assert running.proxy.metrics.refused["frame"] == 1
    warnings = [it.getMessage() for it in caplog.records if it.levelname == "WARNING"]
    assert len(warnings) == 1
    assert reason in warnings[0]


@pytest.mark.parametrize("wrong", [struct.pack(">ii", 4, 99), struct.pack(">ih", 2, 0), struct.pack(">i", -5)])
async def test_an_answer_that_is_none_ends_the_connection(serve_proxy: Serve, wrong: bytes) -> None:
    upstream = Upstream()
    async with serve_proxy(upstream) as running:
        upstream.by_hand = True
        client = await running.connect()
        await client.send(HEARTBEAT, 4)
        behind = await upstream.connections.receive()
        await behind.next()
        await behind.send(wrong)
        assert await client.is_closed()


async def test_a_metadata_answer_that_cannot_be_read_never_reaches_the_client(serve_proxy: Serve) -> None:
    upstream = Upstream()
    async with serve_proxy(upstream) as running:
        upstream.by_hand = True
        client = await running.connect()
        sent = await client.send(MetadataRequest(topics=[]), 12)
        behind = await upstream.connections.receive()
        await behind.next()
        await behind.send(struct.pack(">iiB", 12, sent, 0) + b"\0\0\0\0\xff\xff\xff")
        assert await client.is_closed()


async def test_an_upstream_that_is_down_is_waited_for(serve_proxy: Serve, caplog: pytest.LogCaptureFixture) -> None:
    listener = (await trio.open_tcp_listeners(0, host="127.0.0.1"))[0]
    port = listener.socket.getsockname()[1]
    await listener.aclose()
    proxy = Proxy(Settings([("127.0.0.1", port)], ("127.0.0.1", 0)))
    async with trio.open_nursery() as nursery:
        ready = await nursery.start(proxy.serve)
        assert ready.brokers == 0
        client = Client(await trio.open_tcp_stream("127.0.0.1", ready.port))
        await client.send(MetadataRequest(topics=[]), 12)
        assert await client.is_closed()  # so that it tries again
        await client.stream.aclose()
        assert proxy.metrics.refused["upstream"] == 1
        assert proxy.metrics.upstream_failures[f"127.0.0.1:{port}"] == 1
        proxy.stop()
    assert any(it.getMessage().endswith("Connection refused") for it in caplog.records if "cannot" in it.getMessage())
    assert_nothing_held(proxy)


async def test_the_second_address_of_upstream_is_asked_where_the_first_is_dead() -> None:
    dead = (await trio.open_tcp_listeners(0, host="127.0.0.1"))[0]
    dead_port = dead.socket.getsockname()[1]
    await dead.aclose()
    upstream = Upstream()
    async with trio.open_nursery() as nursery:
        port = await nursery.start(upstream.run)
        proxy = Proxy(Settings([("127.0.0.1", dead_port), ("127.0.0.1", port)], ("127.0.0.1", 0)))
        ready = await nursery.start(proxy.serve)
        assert ready.brokers == 1
        stream = await trio.open_tcp_stream("127.0.0.1", ready.port)
        await stream.send_all(build_request_frame(MetadataRequest(topics=[]), 12, 1, "c"))
        assert await stream.receive_some(10) != b""
        await stream.aclose()
        nursery.cancel_scope.cancel()


async def test_when_upstream_hangs_up_the_client_is_told_so(serve_proxy: Serve) -> None:
    upstream = Upstream()
    async with serve_proxy(upstream) as running:
        upstream.by_hand = True
        client = await running.connect()
        await client.send(HEARTBEAT, 4)
        behind = await upstream.connections.receive()
        received = await behind.next()
        await behind.send(beat(received))
        await behind.stream.aclose()
        await client.receive_frame()  # what it had answered still arrives
        assert await client.is_closed()
        await until(lambda: running.proxy.metrics.open["bootstrap"] == 0)


async def test_when_a_client_goes_its_connection_to_upstream_does(serve_proxy: Serve) -> None:
    upstream = Upstream()
    async with serve_proxy(upstream) as running:
        upstream.by_hand = True
        client = await running.connect()
        await client.send(HEARTBEAT, 4)
        behind = await upstream.connections.receive()
        await behind.next()
        await client.stream.aclose()
        with pytest.raises(EOFError):
            await behind.next()


async def test_a_connection_on_which_nothing_moves_ends(serve_proxy: Serve) -> None:
    upstream = Upstream()
    async with serve_proxy(upstream, idle_seconds=0.2) as running:
        upstream.by_hand = True
        silent = await running.connect()
        half_open = await running.connect()
        await half_open.send(HEARTBEAT, 4)
        assert await silent.is_closed()
        assert await half_open.is_closed()
        assert running.proxy.metrics.refused["idle"] == 2


async def test_there_are_at_most_so_many_connections(serve_proxy: Serve) -> None:
    async with serve_proxy(Upstream(), max_connections=2) as running:
        first, second = await running.connect(), await running.connect()
        assert (await first.call(MetadataRequest(topics=[]), 12)).brokers
        assert (await second.call(MetadataRequest(topics=[]), 12)).brokers
        third = await running.connect()
        assert await third.is_closed()
        await first.stream.aclose()
        await until(lambda: running.proxy.metrics.open["bootstrap"] == 1)
        assert (await (await running.connect()).call(MetadataRequest(topics=[]), 12)).brokers


async def test_a_proxy_of_itself_says_so() -> None:
    listener = (await trio.open_tcp_listeners(0, host="127.0.0.1"))[0]
    port = listener.socket.getsockname()[1]
    await listener.aclose()
    proxy = Proxy(Settings([("localhost", port)], ("127.0.0.1", port)))
    with trio.fail_after(10), pytest.raises(ProxyError, match="leads back to this proxy"):
        await proxy.serve()


async def test_a_circle_of_proxies_says_so() -> None:
    ports = []
    for _ in range(2):
        listener = (await trio.open_tcp_listeners(0, host="127.0.0.1"))[0]
        ports.append(listener.socket.getsockname()[1])
        await listener.aclose()
    first = Proxy(Settings([("127.0.0.1", ports[1])], ("127.0.0.1", ports[0])))
    second = Proxy(Settings([("127.0.0.1", ports[0])], ("127.0.0.1", ports[1])))
    with trio.fail_after(20), pytest.RaisesGroup(ProxyError, flatten_subgroups=True):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(first.serve)
            nursery.start_soon(second.serve)


async def test_a_stop_waits_for_answers_under_way_and_for_nothing_else(serve_proxy: Serve) -> None:
    upstream = Upstream()
    async with serve_proxy(upstream) as running:
        idle, silent = await running.connect(), await running.connect()
        await idle.call(MetadataRequest(topics=[]), 12)
        upstream.by_hand = True
        client = await running.connect()
        await client.send(HEARTBEAT, 4)
        behind = await upstream.connections.receive()
        received = await behind.next()
        running.proxy.stop()
        assert await idle.is_closed()
        assert await silent.is_closed()
        await behind.send(beat(received))
        await client.receive_frame()
        assert await client.is_closed()


async def test_a_stop_ends_without_answers_after_its_grace(serve_proxy: Serve) -> None:
    upstream = Upstream()
    async with serve_proxy(upstream) as running:
        upstream.by_hand = True
        client = await running.connect()
        await client.send(HEARTBEAT, 4)
        await (await upstream.connections.receive()).next()
        running.proxy.stop()
        with trio.fail_after(10):
            assert await client.is_closed()


async def test_a_port_that_is_taken_is_refused_with_a_sentence() -> None:
    listener = (await trio.open_tcp_listeners(0, host="127.0.0.1"))[0]
    port = listener.socket.getsockname()[1]
    with pytest.raises(ProxyError, match=rf"cannot listen on 127\.0\.0\.1:{port}: Address already in use"):
        await Proxy(Settings([("127.0.0.1", 1)], ("127.0.0.1", port))).serve()
    await listener.aclose()


def large_fetch(**fields: Any) -> FetchResponse:
    """An answer that is never whole in a chunk."""
    partition = PartitionData(partition_index=0, records=bytes(range(256)) * 4_000)
    topic = FetchableTopicResponse(topic_id=UUID(int=5), partitions=[partition])
    return FetchResponse(responses=[topic], **fields)


async def test_a_large_fetch_goes_on_as_it_comes(serve_proxy: Serve) -> None:
    """Nothing of it is held whole, and clients do not see who leads upstream."""
    upstream = Upstream(THREE)
    async with serve_proxy(upstream) as running:
        upstream.by_hand = True
        client = await running.connect()
        await client.send(FetchRequest(), 17)
        served = await upstream.connections.receive()
        received = await served.next()
        named = answer(received, large_fetch(node_endpoints=[NodeEndpoint(node_id=2, host="secret", port=1)]))
        await served.send(named[:700_000])
        begun = await client._exactly(200_000)
        assert begun == named[:200_000]
        assert running.proxy._shared.responses.used_bytes == 0
        await served.send(named[700_000:])
        client._received[:0] = begun
        _, response = await client.receive(ApiKey.FETCH, 17)
        assert response.responses == large_fetch().responses
        assert response.node_endpoints == []
        assert b"secret" not in bytes(response.unknown_tagged_fields[0].data)


async def test_a_large_answer_that_is_no_fetch_ends_the_connection(
    serve_proxy: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    upstream = Upstream()
    async with serve_proxy(upstream) as running:
        upstream.by_hand = True
        client = await running.connect()
        await client.send(FetchRequest(), 17)
        served = await upstream.connections.receive()
        await served.next()
        await served.send(struct.pack(">ii", 100_004, 1) + b"\xff" * 100_000)
        with pytest.raises(EOFError):
            await client.receive_frame()
    assert "upstream: the FETCH response" in caplog.text
