"""What Apache Kafka's perf tools print."""

from __future__ import annotations

import pytest

from benchmarks.measuring.java_tools import read, read_shared, sent

SENT = """\
343210 records sent, 68628.3 records/sec (65.45 MB/sec), 402.1 ms avg latency, 803.0 ms max latency.
600000 records sent, 68705.5 records/sec (65.52 MB/sec), 401.08 ms avg latency, 903.00 ms max latency, 318 ms 50th, \
700 ms 95th, 799 ms 99th, 890 ms 99.9th.
"""
READ = """\
start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, fetch.time.ms, \
fetch.MB.sec, fetch.nMsg.sec
2026-11-21 19:12:00:123, 2026-11-21 19:12:06:123, 572.2046, 95.3674, 600016, 100002.6667, 844, 5156, 110.9784, \
116372.3817
"""


def test_the_last_line_of_the_producer_counts() -> None:
    assert sent(SENT, 600_000) == {"records_per_s": 68705.5, "p50_ms": 318, "p99_ms": 799}


def test_a_producer_that_did_not_send_everything_is_an_error() -> None:
    with pytest.raises(ValueError, match="not everything was sent"):
        sent(SENT, 600_001)


def test_reading_counts_without_the_forming_of_the_group() -> None:
    assert read(READ, 600_000) == {"records_per_s": 116372.3817}


@pytest.mark.parametrize("printed", ["", READ.splitlines()[0], READ.replace("600016", "512")])
def test_a_consumer_that_did_not_read_everything_is_an_error(printed: str) -> None:
    with pytest.raises(ValueError, match="not everything was read"):
        read(printed, 600_000)


SHARED = """\
start.time, end.time, data.consumed.in.MB, MB.sec, nMsg.sec, data.consumed.in.nMsg, fetch.time.ms
2026-11-22 21:16:10:123, 2026-11-22 21:16:14:364, 4.7684, 1.1244, 11789.6722, 50000, 4241
"""


def test_what_a_share_group_has_read() -> None:
    assert read_shared(SHARED, 50_000) == {"records_per_s": 11789.6722}
    with pytest.raises(ValueError, match="not everything was read"):
        read_shared(SHARED, 50_001)
