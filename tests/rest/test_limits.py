"""What all requests and consumers together may hold, and when it is given back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from ottla.rest.cluster import Cluster
from ottla.rest.consumers.consumer import Settings
from ottla.rest.consumers.consumers import Consumers
from ottla.rest.errors import RestError
from ottla.rest.values import Format
from ottla.rest.work import Work

SETTINGS = Settings(Format.JSON, "earliest", True, 1_000)


def test_memory_is_given_back_whatever_happens() -> None:
    work = Work(max_held_bytes=100)
    with work.holding() as first:
        first.change(60)
        with work.holding() as second:
            second.change(30)
            with pytest.raises(RestError) as refused:
                second.change(11)
        assert refused.value.status == 429
        first.change(-20)
        with work.holding() as third:
            third.change(60)
    with work.holding() as last:
        last.change(100)


@asynccontextmanager
async def consumers() -> AsyncIterator[Consumers]:
    def connect(host: str, port: int) -> Any:
        raise AssertionError("nothing needs a broker here")

    def cluster() -> Cluster:
        return Cluster(connect, [("b", 1)])

    made = Consumers(cluster(), cluster, Work())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(made.run)
        await trio.testing.wait_all_tasks_blocked()
        yield made
        nursery.cancel_scope.cancel()


async def test_a_consumer_that_nobody_asks_ends(autojump_clock: trio.testing.MockClock) -> None:
    async with consumers() as made:
        idle = await made.create("g", "idle", "User:a", SETTINGS)
        used = await made.create("g", "used", "User:a", SETTINGS)
        for _ in range(5):
            await trio.sleep(100)
            async with made.find("g", used, "User:a").turn():
                pass
        with pytest.raises(RestError) as refused:
            made.find("g", idle, "User:a")
        assert refused.value.code == 40403


async def test_a_consumer_that_is_used_for_long_does_not_end(autojump_clock: trio.testing.MockClock) -> None:
    async with consumers() as made:
        name = await made.create("g", None, "User:a", SETTINGS)
        async with made.find("g", name, "User:a").turn():
            await trio.sleep(1_000)
        made.find("g", name, "User:a")


async def test_who_waits_for_a_consumer_that_is_deleted_is_told(autojump_clock: trio.testing.MockClock) -> None:
    async with consumers() as made:
        name = await made.create("g", None, "User:a", SETTINGS)
        consumer = made.find("g", name, "User:a")
        codes = []

        async def wait() -> None:
            try:
                async with consumer.turn():
                    codes.append(0)
            except RestError as error:
                codes.append(error.code)

        async with trio.open_nursery() as nursery, consumer.turn():
            nursery.start_soon(made.delete, "g", name, "User:a")
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
        assert codes == [40403]


async def test_consumers_are_counted(autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.rest.consumers.consumers.MAX_CONSUMERS_OF_USER", 2)
    monkeypatch.setattr("ottla.rest.consumers.consumers.MAX_CONSUMERS", 3)
    async with consumers() as made:
        names = [await made.create("g", None, "User:a", SETTINGS) for _ in range(2)]
        for user in ("User:a", "User:b", "User:c"):
            if user == "User:b":
                await made.create("g", None, user, SETTINGS)
                continue
            with pytest.raises(RestError) as refused:
                await made.create("g", None, user, SETTINGS)
            assert refused.value.status == 429
        await made.delete("g", names[0], "User:a")
        await made.create("g", None, "User:c", SETTINGS)
