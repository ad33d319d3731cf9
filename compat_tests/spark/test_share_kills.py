"""A job on a share group that is ended with kill -9 at each moment that matters; `make share-kill-loop` goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from compat_tests.brokers.process import BrokerProcess
from compat_tests.spark import session
from compat_tests.spark.endurance.share_job import MOMENTS
from compat_tests.spark.endurance.share_spark_kill_loop import run


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_killed_job_works_on_every_record(own_broker: BrokerProcess, tmp_path: Path) -> None:
    """The broker lives on, so that it remembers what it delivered: then nothing is worked on twice either."""
    if reason := session.missing():
        pytest.skip(reason)
    found = run(own_broker, tmp_path, kills=len(MOMENTS))

    assert (found.wrong, found.doubled) == ([], 0)
