"""What is committed is applied here; what cannot be committed is given up."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from ottla.metadata import keys
from ottla.metadata.changes.topic_changes import NewTopic
from ottla.metadata.changes.transactions import SHUTDOWN_SECONDS
from ottla.metadata.controller import Controller
from ottla.metadata.errors import BrokerIdNotRegisteredError
from ottla.metadata.image import BrokerImage
from ottla.metastore.errors import StoreUnavailableError
from ottla.metastore.memory import MemoryMetadataStore
from ottla.metastore.store import Put
from ottla.settings.config import BrokerConfig


class TestShutdown:
    @pytest.mark.parametrize(
        "change",
        [
            lambda controller: controller.create_topic(NewTopic("t", 1, 1)),
            lambda controller: controller.allocate_producer_ids(),
            lambda controller: controller.catch_up(),
        ],
    )
    @pytest.mark.parametrize("begins_before", [True, False])
    async def test_who_is_overtaken_again_and_again_gives_up_soon(
        self,
        store: MemoryMetadataStore,
        controller: Controller,
        monkeypatch: pytest.MonkeyPatch,
        autojump_clock: trio.testing.MockClock,
        change: Any,
        *,
        begins_before: bool,
    ) -> None:
        async def lost(*arguments: Any) -> None:
            await trio.sleep(4)

        for method in ("commit", "get", "list"):
            monkeypatch.setattr(store, method, lost)
        asked_at = trio.current_time() + (2 if begins_before else 0)

        async def shut_down() -> None:
            await trio.sleep_until(asked_at)
            controller.begin_shutdown()

        async with trio.open_nursery() as nursery:
            if begins_before:
                nursery.start_soon(shut_down)
            else:
                await shut_down()
            with pytest.raises(StoreUnavailableError, match="shutting down"):
                await change(controller)
        assert trio.current_time() == asked_at + SHUTDOWN_SECONDS

    async def test_what_it_answers_is_carried_out(self, controller: Controller, autojump_clock: object) -> None:
        controller.begin_shutdown()
        assert (await controller.create_topic(NewTopic("t", 1, 1))).name == "t"


async def test_one_that_is_behind_catches_up(store: MemoryMetadataStore, nursery: trio.Nursery) -> None:
    """Before that it would say of a broker that came and went meanwhile that there is none."""
    behind = Controller(store, BrokerConfig(), node_id=1)
    goes_on = trio.Event()
    behind.subscribe(lambda delta: goes_on.wait())
    goes_on.set()
    await nursery.start(behind.run)
    goes_on = trio.Event()
    await store.commit([], [Put(keys.broker(2), keys.encode_broker(BrokerImage(2, (), fenced=True)))])
    async with trio.open_nursery() as asking:
        asking.start_soon(behind.catch_up)
        await trio.testing.wait_all_tasks_blocked()
        assert 2 not in behind.image.brokers
        goes_on.set()
    await behind.unregister_broker(2)
    assert await store.get(keys.broker(2)) is None
    with pytest.raises(BrokerIdNotRegisteredError):
        await behind.unregister_broker(2)
