"""The page counter under faults: whatever the broker does, every view counts once."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from aiokafka.errors import KafkaError

from examples.faults.page_views import TOTALS, VIEWS, PageViews
from ottla.testing import Broker

pytestmark = pytest.mark.ottla(topics={VIEWS: 4, TOTALS: 1})

EXPECTED = {"home": 30, "about": 10}


def view(broker: Broker, first: int, last: int) -> None:
    """Views with the ids `first` to `last`: three of four are of the home page."""
    for number in range(first, last):
        page = "about" if number % 4 == 3 else "home"
        broker.produce(VIEWS, {"id": str(number), "page": page}, key=str(number))


def count(broker: Broker, members: int, then: Callable[[], Coroutine[Any, Any, None]] | None = None) -> Counter[str]:
    """Let members count until all views are counted, while `then` happens; the totals that they come to."""
    totals: Counter[str] = Counter()
    seen: set[str] = set()

    async def work() -> None:
        async with PageViews(broker.bootstrap, totals, seen) as member:
            while sum(totals.values()) < sum(EXPECTED.values()):
                with contextlib.suppress(KafkaError):  # it is tried again: nothing was committed
                    await member.count()

    async def main() -> None:
        async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
            for _ in range(members):
                tasks.create_task(work())
            if then is not None:
                await then()

    asyncio.run(main())
    return totals


def last_totals(broker: Broker) -> dict[str, int]:
    return {(record.key or b"").decode(): record.json() for record in broker.records(TOTALS)}


def test_every_view_counts_once(ottla_broker: Broker) -> None:
    view(ottla_broker, 0, 40)
    assert count(ottla_broker, members=1) == EXPECTED
    assert last_totals(ottla_broker) == EXPECTED


def test_a_lost_acknowledgement_stores_no_total_twice(ottla_broker: Broker) -> None:
    view(ottla_broker, 0, 40)
    lost = ottla_broker.faults.drop_connections("Produce", after_handling=True, topic=TOTALS)

    assert count(ottla_broker, members=1) == EXPECTED

    assert lost.struck == 1
    values = [(record.key, record.value) for record in ottla_broker.records(TOTALS)]
    assert len(values) == len(set(values))


@pytest.mark.parametrize(
    ("api", "error"),
    [
        ("OffsetCommit", "COORDINATOR_LOAD_IN_PROGRESS"),
        ("Heartbeat", "NOT_COORDINATOR"),
        ("Fetch", "NOT_LEADER_OR_FOLLOWER"),
        ("JoinGroup", "COORDINATOR_NOT_AVAILABLE"),
    ],
)
def test_errors_of_the_broker_lose_nothing(ottla_broker: Broker, api: str, error: str) -> None:
    view(ottla_broker, 0, 40)
    ottla_broker.faults.fail(api, error, times=2)
    assert count(ottla_broker, members=2) == EXPECTED


def test_a_stall_and_a_restart_in_the_middle_lose_nothing(ottla_broker: Broker) -> None:
    view(ottla_broker, 0, 20)

    async def interrupt() -> None:
        await ottla_broker.wait_for_async(TOTALS)
        with ottla_broker.faults.stalled():
            await asyncio.sleep(0.05)
        await asyncio.to_thread(ottla_broker.restart)
        await asyncio.to_thread(view, ottla_broker, 20, 40)

    assert count(ottla_broker, members=2, then=interrupt) == EXPECTED


def test_a_slow_broker_is_only_slow(ottla_broker: Broker) -> None:
    view(ottla_broker, 0, 40)
    ottla_broker.faults.delay("Fetch", ms=5, jitter_ms=20)
    assert count(ottla_broker, members=2) == EXPECTED
