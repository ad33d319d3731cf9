"""What rdkafka_performance prints, and that the benchmarks do without it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from benchmarks import __main__ as command
from benchmarks import rdkafka_performance
from benchmarks.measuring.c_program import MissingToolError
from benchmarks.rdkafka_performance import consumed, produced

PRODUCED = """\
% Sending 60000 messages of size 10000 bytes
% 3 backpressures for 60000 produce calls: 0.005% backpressure rate
% 60000 messages produced (600000000 bytes), 60000 delivered (offset 14999, 0 failed) in 1603ms: 37409 msgs/s and \
374.09 MB/s, 0 produce failures, 0 in queue, no compression
"""
CONSUMED = "% 60016 messages (600160000 bytes) consumed in 1203ms: 49888 msgs/s (498.88 MB/s)\n"


def test_the_seconds_of_a_run() -> None:
    assert produced(PRODUCED, 60_000) == 1.603
    assert consumed(CONSUMED, 60_000) == 1.203


@pytest.mark.parametrize("printed", ["", PRODUCED.replace("60000 delivered", "59999 delivered")])
def test_a_producer_that_did_not_deliver_everything_is_an_error(printed: str) -> None:
    with pytest.raises(ValueError, match="not all of 60000 records"):
        produced(printed, 60_000)


def test_a_record_that_failed_is_an_error() -> None:
    with pytest.raises(ValueError, match="not all of 60000 records"):
        produced(PRODUCED.replace("0 failed", "1 failed"), 60_000)


def test_a_consumer_that_did_not_read_everything_is_an_error() -> None:
    with pytest.raises(ValueError, match="not all of 60017 records"):
        consumed(CONSUMED, 60_017)


def test_without_the_program_its_workloads_are_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _program: None)
    monkeypatch.setattr(rdkafka_performance, "_EXAMPLE", Path("/nowhere/rdkafka_performance.c"))

    with pytest.raises(MissingToolError, match="install librdkafka-dev"):
        rdkafka_performance.build()

    names = ("1 KB", "rdkafka_performance, 1 KB", "start")
    assert command.available(names) == ("1 KB", "start")
    assert "without rdkafka_performance, 1 KB: " in capsys.readouterr().err
