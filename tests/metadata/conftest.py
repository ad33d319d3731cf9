"""A controller on a store in memory, running."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import trio

from ottla.metadata.controller import Controller
from ottla.metadata.image import BrokerImage, Endpoint, MetadataDelta
from ottla.metastore.memory import MemoryMetadataStore
from ottla.settings.config import BrokerConfig


class Recorder:
    """A subscriber that keeps every delta, and the image that the controller showed while it was applied."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self.deltas: list[MetadataDelta] = []
        self.shown: list[int] = []

    async def apply(self, delta: MetadataDelta) -> None:
        await trio.lowlevel.checkpoint()
        self.deltas.append(delta)
        self.shown.append(self._controller.image.revision)


@pytest.fixture
def config() -> BrokerConfig:
    return BrokerConfig()


@pytest.fixture
def store() -> MemoryMetadataStore:
    return MemoryMetadataStore()


@pytest.fixture
async def controller(
    store: MemoryMetadataStore, config: BrokerConfig, nursery: trio.Nursery
) -> AsyncIterator[Controller]:
    controller = Controller(store, config, node_id=1)
    controller.recorder = Recorder(controller)  # type: ignore[attr-defined]
    controller.subscribe(controller.recorder.apply)  # type: ignore[attr-defined]
    await nursery.start(controller.run)
    await controller.register_broker(BrokerImage(1, (Endpoint("PLAINTEXT", "127.0.0.1", 9092),)))
    yield controller
    nursery.cancel_scope.cancel()


@pytest.fixture
def recorder(controller: Controller) -> Recorder:
    return controller.recorder  # type: ignore[attr-defined, no-any-return]
