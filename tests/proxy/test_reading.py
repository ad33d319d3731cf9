"""What is read of frames without parsing them: it agrees with the codecs on everything, and fails on nothing."""

from __future__ import annotations

from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.kproto import codec, headers
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import DecodeError
from ottla.kproto.messages.data import fetch, produce
from ottla.kproto.messages.share.share_fetch import NodeEndpoint as ShareEndpoint
from ottla.kproto.messages.share.share_fetch import ShareFetchResponse
from ottla.kproto.messages.topics.metadata import MetadataResponse, MetadataResponseBroker, MetadataResponseTopic
from ottla.kproto.schema import TaggedField
from ottla.proxy import endpoints, heads, rewriting
from ottla.proxy.long_answers import HIDDEN_TAG, LongFetch
from ottla.runtime.time_slice import CHUNK_ELEMENTS

TEXT = st.text(max_size=200)
TAGS = st.lists(st.tuples(st.integers(100, 200), st.binary(max_size=20)), max_size=2, unique_by=lambda it: it[0]).map(
    lambda found: tuple(TaggedField(*it) for it in sorted(found))
)


def localize(node_id: int, host: str, port: int) -> tuple[str, int]:
    return f"proxy-{host}", 10_000 + node_id


def walked(key: ApiKey, version: int, body: bytes) -> bool:
    walk = endpoints.walk(key, version, body, 0)
    while True:
        try:
            next(walk)
        except StopIteration as end:
            return bool(end.value)


@st.composite
def produce_responses(draw: st.DrawFn) -> produce.ProduceResponse:
    partitions = st.builds(
        produce.PartitionProduceResponse,
        index=st.integers(0, 9),
        record_errors=st.lists(
            st.builds(produce.BatchIndexAndErrorMessage, batch_index_error_message=st.none() | TEXT), max_size=3
        ),
        error_message=st.none() | TEXT,
        current_leader=st.builds(produce.LeaderIdAndEpoch, leader_id=st.integers(-1, 3)),
        unknown_tagged_fields=TAGS,
    )
    topics = st.builds(produce.TopicProduceResponse, partition_responses=st.lists(partitions, max_size=3))
    named = st.builds(produce.NodeEndpoint, node_id=st.integers(0, 3), host=TEXT)
    return produce.ProduceResponse(
        responses=draw(st.lists(topics, max_size=3)), node_endpoints=draw(st.lists(named, max_size=2))
    )


@st.composite
def fetch_responses(draw: st.DrawFn) -> fetch.FetchResponse:
    partitions = st.builds(
        fetch.PartitionData,
        aborted_transactions=st.none() | st.lists(st.builds(fetch.AbortedTransaction), max_size=3),
        records=st.none() | st.binary(max_size=300),
        current_leader=st.builds(fetch.LeaderIdAndEpoch, leader_id=st.integers(-1, 3)),
        unknown_tagged_fields=TAGS,
    )
    topics = st.builds(
        fetch.FetchableTopicResponse, topic_id=st.just(UUID(int=5)), partitions=st.lists(partitions, max_size=3)
    )
    named = st.builds(fetch.NodeEndpoint, node_id=st.integers(0, 3), host=TEXT)
    return fetch.FetchResponse(
        responses=draw(st.lists(topics, max_size=3)), node_endpoints=draw(st.lists(named, max_size=2))
    )


@given(produce_responses(), st.integers(10, 13))
def test_endpoints_of_produce_are_seen(response: produce.ProduceResponse, version: int) -> None:
    if version >= 13:
        for topic in response.responses:
            topic.name = ""
    assert walked(ApiKey.PRODUCE, version, codec.build(response, version)) is bool(response.node_endpoints)


@given(fetch_responses(), st.integers(16, 18))
def test_endpoints_of_fetch_are_seen(response: fetch.FetchResponse, version: int) -> None:
    assert walked(ApiKey.FETCH, version, codec.build(response, version)) is bool(response.node_endpoints)


@given(st.binary(max_size=200) | fetch_responses().map(lambda it: codec.build(it, 17)[:-3]), st.sampled_from([0, 1]))
def test_anything_else_is_a_decode_error_or_an_answer(body: bytes, key: int) -> None:
    try:
        assert walked(ApiKey(key), 13 if key == 0 else 17, body) in (True, False)
    except DecodeError:
        return


def seen(frame: bytearray, cuts: list[int]) -> LongFetch:
    """Look through a frame that comes in pieces, and may be changed."""
    long = LongFetch()
    places = sorted({0, len(frame), *(it % (len(frame) + 1) for it in cuts)})
    for start, end in pairwise(places):
        for _ in long.look(memoryview(frame)[start:end]):
            pass
    return long


def fetch_frame(response: fetch.FetchResponse, version: int) -> bytes:
    head = headers.build_response_header(ApiKey.FETCH, version, 7)
    return b"".join(heads.framed(head, *codec.build_parts(response, version)))


@given(fetch_responses(), st.integers(16, 18), st.lists(st.integers(0, 5000), max_size=30))
def test_a_long_fetch_names_no_broker_and_keeps_all_else(
    response: fetch.FetchResponse, version: int, cuts: list[int]
) -> None:
    before = fetch_frame(response, version)
    frame = bytearray(before)
    assert seen(frame, cuts).is_done
    if not response.node_endpoints:
        assert frame == before
        return
    assert len(frame) == len(before)
    parsed: Any = codec.parse_response(ApiKey.FETCH, version, bytes(frame), 9)
    assert parsed.node_endpoints == []
    assert parsed.responses == codec.parse_response(ApiKey.FETCH, version, before[:], 9).responses  # type: ignore[attr-defined]
    (hidden,) = parsed.unknown_tagged_fields
    assert hidden.tag == HIDDEN_TAG
    assert not any(hidden.data)


@given(fetch_responses(), st.binary(max_size=40), st.integers(0, 400))
def test_a_long_fetch_that_is_none_is_a_decode_error_or_not_done(
    response: fetch.FetchResponse, noise: bytes, place: int
) -> None:
    frame = bytearray(fetch_frame(response, 17))
    place %= len(frame)
    frame[place:place] = noise
    try:
        seen(frame, [])
        seen(frame[:-1], [place])
    except DecodeError:
        return


def test_a_long_fetch_that_goes_on_or_breaks_off_is_noticed() -> None:
    frame = fetch_frame(fetch.FetchResponse(), 17)
    assert not seen(bytearray(frame[:-1]), []).is_done
    with pytest.raises(DecodeError):
        seen(bytearray(frame + b"x"), [])
    with pytest.raises(DecodeError):
        seen(bytearray(frame[:19] + b"\xff" * 9), [])


async def test_a_walk_of_many_partitions_stops_now_and_then() -> None:
    partitions = [fetch.PartitionData(partition_index=it, records=b"r") for it in range(1000)]
    response = fetch.FetchResponse(responses=[fetch.FetchableTopicResponse(partitions=partitions)])
    steps = list(endpoints.walk(ApiKey.FETCH, 17, codec.build(response, 17), 0))
    assert len(steps) == 1000 // CHUNK_ELEMENTS


@given(
    st.integers(3, 13),
    st.none() | TEXT,
    st.none() | TEXT,
    st.sampled_from([0, 1, -1]),
    st.booleans(),
)
def test_whether_a_produce_has_an_answer(
    version: int, client_id: str | None, transactional_id: str | None, acks: int, has_tags: bool
) -> None:
    request = produce.ProduceRequest(transactional_id=transactional_id, acks=acks, timeout_ms=-1)
    header = headers.build_request_header(ApiKey.PRODUCE, version, 7, client_id)
    if has_tags and version >= 9:
        header = header[:-1] + b"\x02\x03\x01a\x04\x02bc"
    frame = header + codec.build(request, version)
    known = [heads.has_answer(frame[:end], 8, end, version) for end in range(8, len(frame) + 1)]
    assert known[-1] is (acks != 0)
    first = known.index(acks != 0)
    assert known == [None] * first + [acks != 0] * (len(known) - first)


@given(
    st.integers(0, 13),
    st.lists(st.tuples(st.integers(0, 5), TEXT, st.integers(0, 65535), st.none() | TEXT), max_size=4),
)
def test_metadata_is_rewritten_as_the_codec_would(version: int, brokers: list[Any]) -> None:
    topic = MetadataResponseTopic(name="t", topic_id=UUID(int=3) if version >= 10 else UUID(int=0))
    response = MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=a, host=b, port=c, rack=d) for a, b, c, d in brokers], topics=[topic]
    )
    body = codec.build(response, version)
    rewritten = b"".join(rewriting._metadata(version, b"head" + body, 4, localize))
    for broker in response.brokers:
        broker.host, broker.port = localize(broker.node_id, broker.host, broker.port)
    assert rewritten == b"head" + codec.build(response, version)


@pytest.mark.parametrize("version", range(14))
def test_metadata_that_is_cut_off_is_a_decode_error(version: int) -> None:
    body = codec.build(MetadataResponse(brokers=[MetadataResponseBroker(node_id=1, host="h", port=1)]), version)
    start = 4 if version >= 3 else 0
    for end in range(start, start + 8):
        with pytest.raises(DecodeError):
            rewriting._metadata(version, body[:end], 0, localize)


async def test_share_endpoints_are_rewritten_and_tags_that_nobody_knows_are_kept() -> None:
    response = ShareFetchResponse(
        node_endpoints=[ShareEndpoint(node_id=1, host="h", port=1)], unknown_tagged_fields=(TaggedField(9, b"x"),)
    )
    parts = await rewriting.rewrite(ApiKey.SHARE_FETCH, 1, codec.build(response, 1), 0, localize)
    assert parts is not None
    again = codec.parse(ShareFetchResponse, 1, b"".join(parts))
    assert again.node_endpoints == [ShareEndpoint(node_id=1, host="proxy-h", port=10_001)]
    assert again.unknown_tagged_fields == (TaggedField(9, b"x"),)
