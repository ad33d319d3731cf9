"""Which of the tests on Spark run, and the session that they share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from compat_tests.brokers.process import BrokerProcess
from compat_tests.selection import below, leave_out
from compat_tests.spark import session
from compat_tests.spark.topics import FORMATS, Topics, stop_queries


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without `-m spark` only the quick ones stay: all of them take minutes."""
    mine = below(Path(__file__).parent, items)
    for item in mine:
        item.add_marker(pytest.mark.spark)
        item.add_marker(pytest.mark.java)
        item.add_marker(pytest.mark.timeout(900))
        # pyspark leaves the sockets of its gateway and of its workers to the garbage collector.
        item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))
        item.add_marker(pytest.mark.filterwarnings("ignore::DeprecationWarning"))
        item.add_marker(pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"))
    if "spark" not in config.option.markexpr:
        # Of the source without a jar tests/pipeline has the quick ones.
        slow = (item for item in mine if item.get_closest_marker("quick") is None or FORMATS["ottla"] in item.name)
        leave_out(config, items, slow)


@pytest.fixture
def spark(programs: None) -> Iterator[SparkSession]:
    if reason := session.missing():
        pytest.skip(reason)
    shared = session.shared()
    yield shared
    stop_queries(shared)


@pytest.fixture
def connector(spark: SparkSession, broker: BrokerProcess) -> Topics:
    """Spark's own connector on the broker that all scenarios share."""
    return Topics(spark, broker.bootstrap)


@pytest.fixture(params=FORMATS, ids=list(FORMATS.values()))
def reader(spark: SparkSession, broker: BrokerProcess, request: pytest.FixtureRequest) -> Topics:
    """Spark's own connector, and the source without a jar in its place: a job changes one word."""
    return Topics(spark, broker.bootstrap, request.param)
