"""Fetch responses made of light partitions and chained records: the same bytes as the schema's codec."""

import itertools
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.kproto import codec
from ottla.kproto.compiler.layout import STEP_ELEMENTS
from ottla.kproto.errors import EncodeError
from ottla.kproto.hot import fetch
from ottla.kproto.hot.fetch import JOINED_BYTES, FetchedPartition, _Twin, build_in_steps, build_parts
from ottla.kproto.messages.data.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)

if TYPE_CHECKING:
    from ottla.kproto.types import Buffer, Part

INT64 = st.integers(-(2**63), 2**63 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
ABORTED = st.none() | st.lists(st.tuples(INT64, INT64), max_size=3) | st.just([(7, 8)] * 127)


def joined(parts: list["Part"]) -> bytes:
    """The bytes of parts that are all in memory."""
    return b"".join(cast("list[Buffer]", parts))


class Chain:
    """Records in pieces, as storage's IOBuf offers them: a size and views, no length."""

    def __init__(self, pieces: list[bytes]) -> None:
        self.pieces = pieces

    @property
    def size_bytes(self) -> int:
        return sum(map(len, self.pieces))

    def parts(self) -> Iterator[memoryview]:
        return map(memoryview, self.pieces)


PARTITIONS = st.fixed_dictionaries(
    {
        "partition_index": INT32,
        "error_code": st.integers(-1, 130),
        "high_watermark": INT64,
        "last_stable_offset": INT64,
        "log_start_offset": INT64,
        "aborted_transactions": ABORTED,
    }
)
PIECES = st.none() | st.lists(st.binary(min_size=1, max_size=200) | st.just(bytes(JOINED_BYTES)), max_size=3)
Drawn = list[tuple[dict[str, Any], list[bytes] | None, bool]]


@given(st.integers(4, 18), st.lists(st.tuples(PARTITIONS, PIECES, st.booleans()), max_size=5), st.booleans())
def test_equal_to_the_codec(version: int, drawn: Drawn, hint: bool) -> None:
    light: list[Any] = []
    full: list[Any] = []
    for fields, pieces, chained in drawn:
        whole = b"".join(pieces or ())
        records = None if pieces is None else Chain(pieces) if chained else whole
        light.append(FetchedPartition(**fields, records=records))
        pairs = fields["aborted_transactions"]
        aborted = None if pairs is None else [AbortedTransaction(producer_id=p, first_offset=o) for p, o in pairs]
        full.append(PartitionData(**fields | {"aborted_transactions": aborted}, records=whole))
    endpoints: list[NodeEndpoint] = []
    if hint and version >= 16:
        endpoints = [NodeEndpoint(node_id=1, host="h", port=2)]
        moved = PartitionData(
            current_leader=LeaderIdAndEpoch(leader_id=1, leader_epoch=2),
            diverging_epoch=EpochEndOffset(epoch=1, end_offset=5),
        )
        light.append(moved)
        full.append(moved)
    encoded = []
    for partitions in (light, full):
        topic = FetchableTopicResponse(
            topic="topic" if version < 13 else "",
            topic_id=uuid.UUID(int=5 if version >= 13 else 0),
            partitions=partitions,
        )
        response = FetchResponse(session_id=9 if version >= 7 else 0, responses=[topic], node_endpoints=endpoints)
        encoded.append(joined(build_parts(response, version)))
        if partitions is full:
            encoded.append(codec.build(response, version))
    assert encoded[0] == encoded[1] == encoded[2]


@pytest.mark.parametrize("version", [4, 12, 18])
def test_in_steps_it_is_the_same(version: int) -> None:
    partitions: list[Any] = [
        FetchedPartition(n, 0, 1, 1, 0, None, None if n % 3 else Chain([b"abc", bytes(n)])) for n in range(700)
    ]
    if version >= 16:
        partitions.append(PartitionData(current_leader=LeaderIdAndEpoch(leader_id=1, leader_epoch=2)))
    topics = [
        FetchableTopicResponse(topic="topic" if version < 13 else "", partitions=partitions[begin : begin + 350])
        for begin in (0, 350)
    ]
    endpoints = [NodeEndpoint(node_id=1, host="h", port=2)] if version >= 16 else []
    response = FetchResponse(responses=topics, node_endpoints=endpoints)
    stops: list[None] = []
    encoded: list[bytes] = []

    def build() -> Iterator[None]:
        encoded.append(joined((yield from build_in_steps(response, version))))

    stops += build()
    assert encoded == [joined(build_parts(response, version))]
    assert len(stops) >= 5


def test_what_was_made_for_the_codec_is_freed_a_step_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    alive = 0

    class Traced(_Twin):
        def __init__(self, light: FetchedPartition) -> None:
            nonlocal alive
            super().__init__(light)
            alive += 1

        def __del__(self) -> None:
            nonlocal alive
            alive -= 1

    monkeypatch.setattr(fetch, "_Twin", Traced)
    partitions: list[Any] = [FetchedPartition(n, 0, 1, 1, 0, None, None) for n in range(5 * STEP_ELEMENTS)]
    unusual: list[Any] = [PartitionData(current_leader=LeaderIdAndEpoch(leader_id=1, leader_epoch=2))]
    topics = [FetchableTopicResponse(partitions=some) for some in (unusual, partitions)]
    counts = [alive for _ in build_in_steps(FetchResponse(responses=topics), 18)]
    assert max(counts) == len(partitions)
    assert alive == 0
    freed = [before - after for before, after in itertools.pairwise([*counts, alive])]
    assert max(freed) == STEP_ELEMENTS


def response_of(partition: object) -> FetchResponse:
    partitions: list[Any] = [partition]
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=partitions)])


def test_records_are_passed_on_as_they_are() -> None:
    pieces = [memoryview(bytearray(b"abc" * JOINED_BYTES)), memoryview(bytearray(b"defg"))]

    class Views(Chain):
        def parts(self) -> Iterator[memoryview]:
            return iter(pieces)

    parts = build_parts(response_of(FetchedPartition(0, 0, 1, 1, 0, None, Views(list(map(bytes, pieces))))), 12)
    assert [part for part in parts if part in pieces] == pieces
    assert all(any(part is piece for part in parts) for piece in pieces)
    assert all(isinstance(part, bytes | memoryview) for part in parts)


def test_small_records_are_one_piece_with_what_is_around_them() -> None:
    answer = FetchedPartition(0, 0, 1, 1, 0, None, Chain([b"abc", b"defg"]))
    assert len(build_parts(response_of(answer), 12)) == 1


def test_what_does_not_fit_is_the_codecs_error() -> None:
    with pytest.raises(EncodeError):
        build_parts(response_of(FetchedPartition(2**31, 0, 1, 1, 0, None, b"")), 12)
    with pytest.raises(EncodeError):
        build_parts(response_of(FetchedPartition(0, 0, 1, 1, 0, None, b"")), 19)
