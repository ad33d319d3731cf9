"""A simulation leaves the other threads of its process alone, and they leave its seed alone."""

from __future__ import annotations

import random
import select
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager, ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
import trio
from trio._core import _run as trio_run

from ottla.runtime import time_slice
from ottla.server.network import readiness
from ottla.simulation.cluster import determinism as cluster
from ottla.simulation.cluster.machines.epoll import simulated_epoll
from ottla.simulation.coordinators import determinism as coordinators
from ottla.simulation.harness import scheduling
from ottla.simulation.storage.workers import Workers
from ottla.storage.store import file_store

SEED = 7

_clocks = (time.monotonic, time.perf_counter)
_slices: Any = time_slice
_readiness: Any = readiness
_file_store: Any = file_store


@contextmanager
def cluster_seed() -> Any:
    network: Any = SimpleNamespace(has_epoll=True, epolls={}, rng=random.Random(0))
    with ExitStack() as stack:
        stack.enter_context(cluster.deterministic(SEED, Workers(random.Random(0), pause_probability=0.0)))
        stack.enter_context(simulated_epoll(network))
        yield


def in_another_thread(function: Callable[[], Any]) -> Any:
    """What a function returns or raises in a thread of its own."""
    done: Future[Any] = Future()

    def run() -> None:
        try:
            done.set_result(function())
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            done.set_exception(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return done.result()


def live() -> dict[str, Any]:
    """What a broker in this thread would see."""

    async def main() -> int:
        began = trio.current_time()
        await trio.sleep(0.001)
        assert trio.current_time() > began
        return await trio.to_thread.run_sync(threading.get_ident)

    worker = trio.run(main)
    return {
        "ids": [uuid.uuid4() for _ in range(3)],
        "clocks": (time.monotonic(), time.perf_counter(), _slices.perf_counter()),
        "worker": worker != threading.get_ident(),
        "epoll": _readiness.select.epoll is select.epoll,
        "lock": type(_file_store.threading.Lock()) is type(threading.Lock()),
    }


def check(seen: dict[str, Any], began: tuple[float, ...]) -> None:
    ended = (_clocks[0](), _clocks[1](), _clocks[1]())
    assert all(before <= at <= after for before, at, after in zip(began, seen["clocks"], ended, strict=True))
    assert [seen[it] for it in ("worker", "epoll", "lock")] == [True] * 3


def first_ids(count: int) -> list[UUID]:
    make_id = scheduling.ids(SEED)
    return [make_id() for _ in range(count)]


@pytest.mark.parametrize("seed", [cluster_seed, lambda: coordinators.deterministic(SEED)], ids=["cluster", "groups"])
def test_a_broker_in_another_thread_goes_on(seed: Callable[[], AbstractContextManager[None]]) -> None:
    began = (_clocks[0](), _clocks[1](), _clocks[1]())
    state = random.getstate()
    with seed():
        assert random.getstate() == state
        own = [uuid.uuid4()]
        seen = in_another_thread(live)
        own.append(uuid.uuid4())
    check(seen, began)
    assert own == first_ids(2)
    assert not set(seen["ids"]) & set(first_ids(10))


def test_another_loop_does_not_change_the_order_of_tasks() -> None:
    def drawn(between: Callable[[], Any]) -> list[float]:
        with scheduling.scheduled(SEED):
            numbers = [trio_run._r.random()]
            in_another_thread(between)
            return [*numbers, trio_run._r.random()]

    assert drawn(live) == drawn(lambda: None)


def test_another_loop_has_its_own_time_while_a_seed_runs() -> None:
    began = (_clocks[0](), _clocks[1](), _clocks[1]())
    seen: dict[str, Any] = {}

    async def simulated() -> None:
        await trio.sleep(1_000)
        seen.update(in_another_thread(live))
        await trio.sleep(1_000)
        assert trio.current_time() == 2_000

    scheduling.run(simulated, SEED, limit_s=10_000)
    check(seen, began)
