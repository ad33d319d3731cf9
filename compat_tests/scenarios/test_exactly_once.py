"""The job of `make exactly-once`, through three kills."""

import pytest

from compat_tests.brokers.process import BrokerProcess
from compat_tests.endurance import exactly_once


@pytest.mark.slow
def test_a_copy_job_through_kills_of_its_broker_copies_each_record_once(own_broker: BrokerProcess) -> None:
    assert exactly_once.run(own_broker, kills=3, records=3_000) == []
