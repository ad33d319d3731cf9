"""Clocks that differ between machines: found in what etcd answers, said once, and nothing else follows."""

from __future__ import annotations

import logging
import re
from email.utils import formatdate
from pathlib import Path

import pytest

from ottla.metastore.address import parse_metadata_address
from ottla.metastore.clock_difference import ClockWatch, difference
from ottla.metastore.etcd import open_etcd_store
from ottla.metastore.etcd_client import EtcdAccess
from ottla.storage.clock import SystemClock
from tests.etcd import Etcd, needs_etcd

NOON = 1_800_000_000.0
AN_HOUR_MS = 3_600_000


def date(seconds: float) -> str:
    return formatdate(seconds, usegmt=True)


@pytest.mark.parametrize(
    ("said", "sent", "received", "expected"),
    [
        (NOON, NOON, NOON, 0),
        (NOON + 0.9, NOON, NOON + 0.01, 0),  # the date was cut to the second
        (NOON, NOON + 0.99, NOON + 1.5, 0),
        (NOON, NOON - 5, NOON + 5, 0),  # it took long: nobody knows
        (NOON, NOON + 11, NOON + 12, 10),
        (NOON + 10, NOON - 1, NOON, -10),
    ],
)
def test_a_difference_is_what_is_certain(said: float, sent: float, received: float, expected: float) -> None:
    assert difference(date(said), sent, received) == expected


def test_it_is_said_once_and_once_that_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    watch = ClockWatch()
    for ahead in (0, 100, 100, 0, 0, -100):
        watch.heard("e", date(NOON), NOON + ahead, NOON + ahead)
    watch.heard("e", None, NOON, NOON)
    watch.heard("e", "noon", NOON, NOON)
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "the clock of this machine is 99 s ahead of that of e",
        "the clock of this machine agrees with that of e again",
        "the clock of this machine is 100 s behind that of e",
    ]


@needs_etcd
async def test_a_node_whose_clock_is_wrong_says_so_and_keeps_its_lease(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its lease ends by etcd's clock and is prolonged by requests: what the node takes for the time is not asked."""
    etcd = Etcd(tmp_path)
    etcd.start()
    try:
        address = parse_metadata_address(f"etcd://{etcd.hosts}/c")
        assert address is not None
        store = await open_etcd_store(address, EtcdAccess(), lambda: SystemClock().time_ms() + AN_HOUR_MS)
        try:
            lease = await store.grant_lease(60_000)
            await store.keep_alive(lease)
        finally:
            await store.close()
    finally:
        etcd.close()
    said = [record.getMessage() for record in caplog.records if "clock" in record.getMessage()]
    assert len(said) == 1
    assert re.match(r"the clock of this machine is (3599|3600) s ahead of that of 127\.0\.0\.1:\d+: no lease", said[0])
