"""The watchdog names what held the loop."""

import logging
import time

import pytest
import trio

from ottla.runtime.watchdog import LoopWatchdog


def hog(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def test_a_hold_is_logged_with_its_task_and_stack(caplog: pytest.LogCaptureFixture) -> None:
    async def culprit() -> None:
        await trio.lowlevel.checkpoint()
        hog(0.05)
        await trio.lowlevel.checkpoint()

    watchdog = LoopWatchdog(threshold_ms=5)
    with caplog.at_level(logging.INFO):
        trio.run(culprit, instruments=[watchdog])
    assert watchdog.holds >= 1
    assert watchdog.longest_hold_ms >= 50
    assert "culprit" in caplog.text
    assert "in hog" in caplog.text


def test_a_loop_that_yields_is_not_accused(caplog: pytest.LogCaptureFixture) -> None:
    async def polite() -> None:
        for _ in range(10):
            await trio.sleep(0.001)

    watchdog = LoopWatchdog(threshold_ms=10_000)
    trio.run(polite, instruments=[watchdog])
    assert watchdog.holds == 0
    assert not caplog.records


def test_log_lines_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    async def culprit() -> None:
        for _ in range(200):
            hog(0.0002)
            await trio.lowlevel.checkpoint()

    watchdog = LoopWatchdog(threshold_ms=0.1)
    trio.run(culprit, instruments=[watchdog])
    assert watchdog.holds >= 200
    assert sum("the loop was held for" in record.message for record in caplog.records) <= 20


def test_the_longest_is_logged_however_many_there_are(caplog: pytest.LogCaptureFixture) -> None:
    async def culprit() -> None:
        for _ in range(200):
            hog(0.0002)
            await trio.lowlevel.checkpoint()
        hog(0.05)

    watchdog = LoopWatchdog(threshold_ms=0.1)
    trio.run(culprit, instruments=[watchdog])
    logged = [record.duration_ms for record in caplog.records if hasattr(record, "duration_ms")]
    assert max(logged) >= 50
    assert len(logged) < 100
