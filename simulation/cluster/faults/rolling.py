"""A rolling upgrade when nothing else is wrong: each node is stopped and started again, then a feature is raised."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.cluster.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from ottla.metadata.features import STREAMS_VERSION
from ottla.metadata.loader import MAX_PAUSE_SECONDS
from ottla.simulation.cluster.checks.ending import until_in_sync
from ottla.simulation.cluster.checks.in_sync import view
from ottla.simulation.cluster.clients.client import Client

if TYPE_CHECKING:
    from ottla.simulation.cluster.world import World

__all__ = ["upgrade"]

_KNOWN_S: Final = 5.0
_DOWN, _UP = 2, 1
"""Types of an update: a safe downgrade, and an upgrade."""


async def upgrade(world: World) -> None:
    """Stop and start one node after the other while clients go on, each only when all are in sync again."""
    # After a fault nodes wait so long, at most, before they ask the metadata store again; until then they hand nothing
    # over.
    await trio.sleep(MAX_PAUSE_SECONDS)
    await until_in_sync(world)
    for machine in list(world.machines.values()):
        await machine.stop()
        await _check_handed_over(world, machine.node_id)
        machine.start()
        await until_in_sync(world)
    await _Upgrader(world).run()


async def _check_handed_over(world: World, node_id: int) -> None:
    """A node that has stopped in order leads nothing, and nobody waits for it."""
    async with view(world.store) as metadata:
        for topic in metadata.image.topics.values():
            for index, state in enumerate(topic.partitions):
                world.check(
                    len(state.replicas) == 1 or node_id not in (state.leader, *state.isr),
                    f"node {node_id} has stopped and was in sync with others, and {topic.name}-{index} is led by "
                    f"{state.leader}, in sync {state.isr}",
                )


class _Upgrader(Client):
    """Finalizes a feature's level, down and up again, as there is only one version: all nodes hear of both."""

    def __init__(self, world: World) -> None:
        super().__init__(world, "upgrader")
        self._cluster = world

    async def work(self) -> None:
        for level, kind in ((0, _DOWN), (1, _UP)):
            await self._finalize(level, kind)
            with trio.move_on_after(_KNOWN_S):
                while self._unaware(level):  # noqa: ASYNC110 - it is simulated time
                    await trio.sleep(0.05)
            unaware = self._unaware(level)
            self.world.check(not unaware, f"nodes {unaware} do not know that {STREAMS_VERSION} is {level}")

    async def _finalize(self, level: int, kind: int) -> None:
        update = FeatureUpdateKey(feature=STREAMS_VERSION, max_version_level=level, upgrade_type=kind)
        answer = await self.any_node(UpdateFeaturesRequest(timeout_ms=5_000, feature_updates=[update]))
        code = ErrorCode(answer.error_code)
        self.note(f"sets {STREAMS_VERSION} to {level}: {code.name}")
        self.world.check(code is ErrorCode.NONE, f"{STREAMS_VERSION} is not set to {level}: {answer.error_message}")

    def _unaware(self, level: int) -> list[int]:
        return [
            node_id
            for node_id, machine in self._cluster.machines.items()
            if machine.image is None or machine.image.features.get(STREAMS_VERSION, 0) != level
        ]
