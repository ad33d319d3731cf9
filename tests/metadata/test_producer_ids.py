"""Producer ids from the metadata store."""

from __future__ import annotations

import trio

from ottla.metadata.controller import Controller


async def test_producer_ids_are_given_out_once(controller: Controller) -> None:
    blocks: list[range] = []

    async def allocate() -> None:
        blocks.append(await controller.allocate_producer_ids(10))

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(allocate)
    assert sorted(producer_id for block in blocks for producer_id in block) == list(range(50))
