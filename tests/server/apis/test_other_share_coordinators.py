"""What another broker answers about share partitions is believed only if it is about those that it was asked for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from ottla.coordinator.errors import CoordinatorNotAvailableError
from ottla.coordinator.share.state import SharePartitionKey, StateChange
from ottla.kproto.messages.data.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.kproto.messages.share import read_share_group_state as reading
from ottla.kproto.messages.share import write_share_group_state as writing
from ottla.server.apis.other_share_coordinators import PeerShareCoordinators

KEY = SharePartitionKey("g", UUID(int=7), 1)


def coordinators(answer: Any) -> PeerShareCoordinators:
    async def call(*_: object, **__: object) -> Any:
        return answer

    return PeerShareCoordinators(cast("Any", SimpleNamespace(call=call)))


def read_answer(*answered: tuple[int, int]) -> reading.ReadShareGroupStateResponse:
    return reading.ReadShareGroupStateResponse(
        results=[
            reading.ReadStateResult(
                topic_id=UUID(int=topic), partitions=[reading.PartitionResult(partition=index, start_offset=5)]
            )
            for topic, index in answered
        ]
    )


async def test_the_partition_that_was_asked_for() -> None:
    assert (await coordinators(read_answer((7, 1))).read(1, KEY, 3)).start_offset == 5


@pytest.mark.parametrize("answered", [(), ((7, 0),), ((8, 1),), ((7, 1), (7, 1))])
async def test_an_answer_about_anything_else_is_no_answer(answered: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(CoordinatorNotAvailableError):
        await coordinators(read_answer(*answered)).read(1, KEY, 3)


async def test_an_empty_answer_to_a_write_is_none() -> None:
    others = coordinators(
        writing.WriteShareGroupStateResponse(results=[writing.WriteStateResult(topic_id=KEY.topic_id)])
    )
    with pytest.raises(CoordinatorNotAvailableError):
        await others.write(1, KEY, StateChange(1, 1, 0, 0, ()))
    assert isinstance((await others.delete(1, [KEY]))[KEY], CoordinatorNotAvailableError)


async def test_the_end_of_another_partition_is_none() -> None:
    partitions = [ListOffsetsPartitionResponse(partition_index=0, offset=9)]
    others = coordinators(ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=partitions)]))
    assert await others.end_offset(1, "t", 0) == 9
    for topic, index in (("t", 1), ("u", 0)):
        with pytest.raises(CoordinatorNotAvailableError):
            await others.end_offset(1, topic, index)
