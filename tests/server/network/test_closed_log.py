"""What the log says of connections that were closed, and how much of it."""

from __future__ import annotations

import logging

import pytest
import trio.testing

from ottla.server.network import closed_log
from ottla.server.network.closed_log import LINES_PER_WINDOW, WINDOW_SECONDS, ClosedLog


def say(log: ClosedLog, host: str = "10.0.0.1", client_id: str | None = "reader") -> None:
    log.say(host, 5, client_id, ValueError("no such user"), {"client": f"{host}:5"})


@pytest.mark.frozen_clock
async def test_one_address_gets_a_few_lines_a_minute(
    caplog: pytest.LogCaptureFixture, mock_clock: trio.testing.MockClock
) -> None:
    log = ClosedLog()
    say(log, "10.0.0.9", "x" * 30_000)
    assert len(caplog.records[0].getMessage()) < 200
    caplog.clear()
    for _ in range(100):
        say(log)
    say(log, "10.0.0.2", None)
    lines = [record.getMessage() for record in caplog.records]
    assert lines[0] == "closed the connection from 10.0.0.1:5 (client.id 'reader'): no such user"
    assert lines[LINES_PER_WINDOW] == "further lines about connections from 10.0.0.1 are left out for a minute"
    assert lines[-1] == "closed the connection from 10.0.0.2:5: no such user"
    assert len(lines) == LINES_PER_WINDOW + 2
    assert caplog.records[0].levelno == logging.WARNING
    caplog.clear()
    mock_clock.jump(WINDOW_SECONDS)
    say(log)
    assert [record.getMessage() for record in caplog.records] == [
        f"closed {100 - LINES_PER_WINDOW} more connections from 10.0.0.1, without a line for each",
        "closed the connection from 10.0.0.1:5 (client.id 'reader'): no such user",
    ]


@pytest.mark.frozen_clock
async def test_many_addresses_are_not_remembered_for_ever(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(closed_log, "_MAX_HOSTS", 3)
    log = ClosedLog()
    for _ in range(LINES_PER_WINDOW + 2):
        say(log, "10.0.0.0")
    for number in range(1, 10):
        say(log, f"10.0.0.{number}")
    assert len(log._windows) == 3
    assert "closed 2 more connections from 10.0.0.0, without a line for each" in caplog.text
