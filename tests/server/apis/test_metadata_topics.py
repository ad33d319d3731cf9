"""What Metadata keeps of topics: the same bytes until something changes, and not too many of them."""

from __future__ import annotations

from uuid import uuid4

import trio

from ottla.kproto import codec
from ottla.kproto.hot.metadata import EncodedTopic, build_parts
from ottla.kproto.messages.topics.metadata import MetadataResponse, MetadataResponseTopic
from ottla.metadata.image import PartitionState, TopicImage
from ottla.runtime.work import Work
from ottla.server.apis.topics.metadata_topics import EncodedTopics, View

NOT_ASKED = -(2**31)
HERE = View(12, frozenset({1}), frozenset(), NOT_ASKED, has_eligible=True)


def topic(partitions: int = 3, leader: int = 1) -> TopicImage:
    return TopicImage("t", uuid4(), tuple(PartitionState.initial((leader, 9)) for _ in range(partitions)))


def decoded(answer: EncodedTopic, version: int) -> MetadataResponseTopic:
    response = MetadataResponse()
    response.topics = [answer]  # type: ignore[list-item]
    (one,) = codec.parse(MetadataResponse, version, b"".join(build_parts(response, version))).topics
    return one


async def test_a_topic_is_encoded_once() -> None:
    topics, image = EncodedTopics(10_000), topic()
    first = await topics.get(image, HERE, Work())
    assert await topics.get(image, HERE, Work()) is first
    told = decoded(first, 12)
    assert (told.name, told.topic_id) == ("t", image.topic_id)
    assert [it.partition_index for it in told.partitions] == [0, 1, 2]
    assert [it.offline_replicas for it in told.partitions] == [[9]] * 3


async def test_what_has_changed_is_told_anew_and_replaces_what_was_kept() -> None:
    topics, image = EncodedTopics(10_000), topic()
    await topics.get(image, HERE, Work())
    size_bytes = topics.size_bytes
    state = image.partitions[1]._replace(leader_epoch=5)
    changed = image._replace(partitions=(image.partitions[0], state, image.partitions[2]))
    told = decoded(await topics.get(changed, HERE, Work()), 12)
    assert [it.leader_epoch for it in told.partitions] == [0, 5, 0]
    assert len(topics) == 1
    assert topics.size_bytes == size_bytes


async def test_each_view_has_its_own() -> None:
    topics, image = EncodedTopics(10_000), topic()
    far = HERE._replace(reachable=frozenset({2}))
    assert [it.leader_id for it in decoded(await topics.get(image, HERE, Work()), 12).partitions] == [1, 1, 1]
    assert [it.leader_id for it in decoded(await topics.get(image, far, Work()), 12).partitions] == [-1, -1, -1]
    assert (
        decoded(await topics.get(image, HERE._replace(topic_operations=7), Work()), 12).topic_authorized_operations == 7
    )
    assert len(decoded(await topics.get(image, HERE._replace(version=1), Work()), 1).partitions) == 3
    assert len(topics) == 4


async def test_what_is_kept_is_bounded() -> None:
    topics = EncodedTopics(20_000)
    images = [topic(50) for _ in range(40)]
    for image in images:
        await topics.get(image, HERE, Work())
        assert topics.size_bytes <= 20_000
    assert 0 < len(topics) < 20
    kept = len(topics)
    assert len(decoded(await topics.get(topic(5_000), HERE, Work()), 12).partitions) == 5_000
    assert len(topics) == kept, "what is too large is not kept, and takes no other's place"


async def test_others_run_while_a_large_topic_is_encoded() -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(count)
        await EncodedTopics(10_000_000).get(topic(10_000), HERE, Work())
        nursery.cancel_scope.cancel()
    assert turns > 3
