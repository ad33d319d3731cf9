"""The sink is only a client: what holds on Ottla holds on the oracle."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from compat_tests import java
from compat_tests.brokers.apache_kafka import ApacheKafka
from compat_tests.clients.confluent import Confluent
from tests.pipeline.sink.test_exactly_once import (  # noqa: F401 - collected here once more
    test_a_commit_that_failed_half_way_is_not_aborted,
    test_a_copy_of_a_task_that_lost_fails_the_batch_and_doubles_nothing,
    test_a_driver_that_was_taken_for_dead_decides_nothing,
    test_a_kill_at_every_step,
    test_a_kill_of_the_run_that_repairs,
    test_a_part_that_is_lost_after_the_decision_is_written_again_if_it_is_the_same,
    test_a_task_that_is_repeated_counts_once,
    test_a_transaction_that_took_too_long_is_not_decided,
    test_batches_that_are_committed_are_passed_over,
    test_decisions_of_many_tasks,
    test_what_a_failed_batch_wrote_is_aborted,
)

pytestmark = [pytest.mark.java, pytest.mark.kafka, pytest.mark.spark]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    if reason := java.missing():
        pytest.skip(reason)
    with ApacheKafka(tmp_path_factory.mktemp("kafka")) as process:
        yield process


@pytest.fixture(scope="module")
def client(broker: ApacheKafka) -> Confluent:
    return Confluent(broker.bootstrap)
