"""The wall clock and its manual twin."""

from __future__ import annotations

import time

from ottla.storage.clock import Clock, ManualClock, SystemClock


def test_the_system_clock_lies_between_two_readings_of_the_machine() -> None:
    clock: Clock = SystemClock()
    before = time.time_ns() // 1_000_000
    now_ms = clock.time_ms()
    assert before <= now_ms <= time.time_ns() // 1_000_000


def test_the_manual_clock_moves_only_when_told() -> None:
    clock = ManualClock(1_000)
    readings = [clock.time_ms(), clock.time_ms()]
    clock.advance(500)
    readings.append(clock.time_ms())
    clock.advance(-700)
    readings.append(clock.time_ms())
    clock.set(5)
    readings.append(clock.time_ms())
    assert readings == [1_000, 1_000, 1_500, 800, 5]
