"""What groups know of the topics that they read."""

from __future__ import annotations

import zlib
from uuid import UUID

import trio

from ottla.coordinator.group.topics import GroupTopics
from ottla.coordinator.metadata import CoordinatorMetadata
from ottla.metadata.image import MetadataImage, PartitionState, TopicImage

COUNT = 3_000


async def test_thousands_of_topics_are_hashed_in_steps_as_they_were_at_one_time() -> None:
    topics = MetadataImage().topics
    for number in range(COUNT):
        name = f"t{number}"
        topics = topics.set(name, TopicImage(name, UUID(int=number), (PartitionState.initial((1,)),) * 2))
    metadata = CoordinatorMetadata(MetadataImage(revision=1, topics=topics))
    turns = 0

    async def delete_topics() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            metadata.image = MetadataImage(revision=2)
            turns += 1

    names = [*topics, "no-such"]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(delete_topics)
        found = await GroupTopics(metadata).metadata_hash(names)
        nursery.cancel_scope.cancel()
    assert turns > 3
    said = "".join(f"{name}\0{topics[name].topic_id}\0{2}\n" for name in sorted(topics))
    assert found == zlib.crc32(said.encode())
