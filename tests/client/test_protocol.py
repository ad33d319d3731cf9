"""The client's side of a connection: what it sends, what it takes for an answer, and what ends it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.errors import ClientError, ConnectionLostError, UnexpectedAnswerError, UnsupportedVersionError
from ottla.client.protocol import ClientProtocol, State
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.kproto.framing import frame_prefix
from ottla.kproto.messages.cluster.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from ottla.kproto.messages.data.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from ottla.kproto.messages.data.list_offsets import ListOffsetsRequest
from ottla.kproto.messages.data.produce import ProduceRequest
from ottla.kproto.messages.groups.heartbeat import HeartbeatRequest
from ottla.kproto.messages.topics.metadata import MetadataRequest
from ottla.kproto.versions import VersionRange
from tests.client.brokers import SERVED, BrokerSide, Received, answer, beat, versions

HEARTBEAT = HeartbeatRequest(group_id="g", member_id="m")


def started(**limits: Any) -> tuple[ClientProtocol, BrokerSide, Received]:
    """A connection that has asked for versions, and what it asked."""
    protocol, broker = ClientProtocol("broker:9092", "tester", **limits), BrokerSide()
    protocol.start()
    (asked,) = broker.feed(protocol.data_to_send())
    return protocol, broker, asked


def opened(served: dict[ApiKey, VersionRange] | None = None, **limits: Any) -> tuple[ClientProtocol, BrokerSide]:
    protocol, broker, asked = started(**limits)
    assert protocol.feed(versions(asked, served)) == []
    assert protocol.state is State.OPEN
    return protocol, broker


def throttle_times(protocol: ClientProtocol, data: bytes) -> list[int]:
    return [protocol.parse(answer).throttle_time_ms for answer in protocol.feed(data)]


class TestNegotiation:
    def test_asks_in_the_highest_version_and_says_who_asks(self) -> None:
        _, _, asked = started()
        assert (asked.key, asked.version) == (ApiKey.API_VERSIONS, ApiKey.API_VERSIONS.valid_versions.highest)
        assert asked.header.client_id == "tester"
        assert isinstance(asked.request, ApiVersionsRequest)
        assert asked.request.client_software_name == "ottla"

    @pytest.mark.parametrize(("listed", "then"), [([], 0), ([VersionRange(0, 2)], 2), ([VersionRange(0, 9)], 4)])
    def test_asks_an_older_broker_once_more_in_a_version_that_it_knows(
        self, listed: list[VersionRange], then: int
    ) -> None:
        protocol, broker, asked = started()
        keys = [ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=low, max_version=high) for low, high in listed]
        refusal = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=keys)

        assert protocol.feed(answer(asked, refusal, version=0)) == []
        (again,) = broker.feed(protocol.data_to_send())
        assert again.version == then
        protocol.feed(versions(again))
        assert protocol.state is State.OPEN

    def test_a_broker_that_never_agrees_is_asked_no_more(self) -> None:
        protocol, broker, asked = started()
        refusal = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        protocol.feed(answer(asked, refusal, version=0))
        (again,) = broker.feed(protocol.data_to_send())
        assert again.version == 0
        with pytest.raises(UnsupportedVersionError, match="error 35"):
            protocol.feed(answer(again, refusal, version=0))
        assert protocol.data_to_send() == []

    def test_takes_the_highest_common_version_that_the_caller_allows(self) -> None:
        protocol, broker = opened(SERVED | {ApiKey.METADATA: VersionRange(2, 9), ApiKey.HEARTBEAT: VersionRange(0, 99)})
        protocol.send(MetadataRequest())
        protocol.send(MetadataRequest(), at_most=5)
        protocol.send(HEARTBEAT)
        assert [request.version for request in broker.feed(protocol.data_to_send())] == [9, 5, 4]

    def test_what_the_broker_does_not_serve_is_refused_and_the_rest_goes_on(self) -> None:
        protocol, broker = opened({ApiKey.METADATA: VersionRange(99, 100), ApiKey.LIST_OFFSETS: VersionRange(1, 1)})
        for request in (HEARTBEAT, MetadataRequest()):
            with pytest.raises(UnsupportedVersionError, match=f"does not serve {request.API_KEY.kafka_name}"):
                protocol.send(request)
        with pytest.raises(UnsupportedVersionError, match="only up to version 1"):
            protocol.send(ListOffsetsRequest(isolation_level=1, topics=[]))
        protocol.send(ListOffsetsRequest(topics=[]))
        assert [request.key for request in broker.feed(protocol.data_to_send())] == [ApiKey.LIST_OFFSETS]


class TestAnswers:
    @given(st.lists(st.integers(1, 90), min_size=1))
    def test_come_out_in_order_however_the_stream_is_cut(self, cuts: list[int]) -> None:
        protocol, broker, asked = started()
        stream, found = versions(asked), []
        for number in range(6):
            if protocol.state is State.OPEN:
                protocol.send(HEARTBEAT)
                stream = b"".join(beat(request, number) for request in broker.feed(protocol.data_to_send()))
            pos = turn = 0
            while pos < len(stream):
                size = cuts[turn % len(cuts)]
                found += throttle_times(protocol, stream[pos : pos + size])
                pos, turn = pos + size, turn + 1
        assert found == [1, 2, 3, 4, 5]
        assert not protocol.in_flight

    def test_several_in_one_piece(self) -> None:
        protocol, broker = opened()
        sent = [protocol.send(HEARTBEAT) for _ in range(3)]
        requests = broker.feed(protocol.data_to_send())
        assert [request.header.correlation_id for request in requests] == [each.correlation_id for each in sent]
        assert list(protocol.in_flight) == sent
        data = b"".join(beat(request, number) for number, request in enumerate(requests))
        assert throttle_times(protocol, data) == [0, 1, 2]

    def test_a_large_answer_is_received_in_place(self) -> None:
        protocol, broker = opened()
        protocol.send(FetchRequest(topics=[]), at_most=12)
        (request,) = broker.feed(protocol.data_to_send())
        records = bytes(range(256)) * 1000
        topic = FetchableTopicResponse(topic="t", partitions=[PartitionData(records=records)])
        data = answer(request, FetchResponse(responses=[topic]))
        found = []
        while data:
            with protocol.buffer() as room:
                count = min(len(room), len(data))
                room[:count] = data[:count]
            data = data[count:]
            found += protocol.received(count)
        assert protocol.parse(found[0]).responses[0].partitions[0].records == records

    def test_produce_without_acknowledgement_has_none(self) -> None:
        protocol, broker = opened()
        protocol.send(ProduceRequest(acks=0, topic_data=[]))
        protocol.send(HEARTBEAT)
        produce, heartbeat = broker.feed(protocol.data_to_send())
        assert produce.key is ApiKey.PRODUCE
        assert throttle_times(protocol, beat(heartbeat, 7)) == [7]

    def test_correlation_ids_start_again_behind_the_last(self) -> None:
        protocol, broker = opened()
        protocol._correlation_id = (1 << 31) - 2
        sent = [protocol.send(HEARTBEAT).correlation_id for _ in range(3)]
        assert sent == [(1 << 31) - 1, 0, 1]
        data = b"".join(beat(request) for request in broker.feed(protocol.data_to_send()))
        assert len(protocol.feed(data)) == 3


class TestEnds:
    def lost(self, protocol: ClientProtocol, data: bytes, match: str) -> None:
        """The bytes end the connection, and every verb says so from then on."""
        with pytest.raises(ConnectionLostError, match=match):
            protocol.feed(data)
        assert protocol.state is State.LOST
        with pytest.raises(ConnectionLostError, match=match):
            protocol.send(HEARTBEAT)
        with pytest.raises(ConnectionLostError, match=match):
            protocol.feed(b"more")
        assert protocol.data_to_send() == []

    def test_the_peer_hangs_up(self) -> None:
        protocol, _ = opened()
        protocol.send(HEARTBEAT)
        self.lost(protocol, b"", "broker:9092 closed the connection")

    def test_an_answer_to_another_request(self) -> None:
        protocol, broker = opened()
        protocol.send(HEARTBEAT)
        protocol.send(HEARTBEAT)
        _, second = broker.feed(protocol.data_to_send())
        self.lost(protocol, beat(second), "does not speak Kafka's protocol: an answer to request 3, not 2")

    def test_an_answer_that_nobody_asked_for(self) -> None:
        protocol, broker = opened()
        protocol.send(HEARTBEAT)
        (request,) = broker.feed(protocol.data_to_send())
        assert len(protocol.feed(beat(request))) == 1
        self.lost(protocol, beat(request), "nobody asked for")

    @pytest.mark.parametrize(
        "data",
        [b"HTTP/1.1 400 Bad Request\r\n\r\n", frame_prefix(3) + b"abc", b"\xff\xff\xff\xff", frame_prefix(2 << 20)],
    )
    def test_what_is_no_broker(self, data: bytes) -> None:
        protocol, _, _ = started()
        with pytest.raises(UnexpectedAnswerError, match="does not speak Kafka's protocol"):
            protocol.feed(data)

    def test_an_answer_larger_than_allowed(self) -> None:
        protocol, _ = opened(max_answer_bytes=100)
        protocol.send(HEARTBEAT)
        self.lost(protocol, frame_prefix(101), "101 bytes; at most 100")

    def test_an_answer_that_cannot_be_parsed(self) -> None:
        protocol, broker = opened()
        protocol.send(HEARTBEAT)
        (request,) = broker.feed(protocol.data_to_send())
        (found,) = protocol.feed(frame_prefix(6) + request.header.correlation_id.to_bytes(4, "big") + b"\0\0")
        with pytest.raises(UnexpectedAnswerError, match="answered Heartbeat with something that is not an answer"):
            protocol.parse(found)
        assert protocol.state is State.LOST

    def test_no_more_than_so_many_wait_for_answers(self) -> None:
        protocol, broker = opened(max_in_flight=2)
        protocol.send(HEARTBEAT)
        protocol.send(HEARTBEAT)
        with pytest.raises(ClientError, match="2 requests to broker:9092 wait"):
            protocol.send(HEARTBEAT)
        first, _ = broker.feed(protocol.data_to_send())
        protocol.feed(beat(first))
        protocol.send(HEARTBEAT)
        assert len(broker.feed(protocol.data_to_send())) == 1
