"""What a job says of single records, and what the group does then."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from compat_tests.brokers.ottla_broker import OttlaBroker
from compat_tests.clients.base import BEGINNING
from compat_tests.clients.confluent import Confluent
from compat_tests.spark.endurance.share_driver import configure
from ottla.pipeline.errors import OptionError, PipelineError
from ottla.pipeline.share.outcomes import Outcomes
from tests.pipeline.share.conftest import ALL, Stream, next_batch, rows, values

NewTopic = Callable[..., str]


def say(folder: Path, batch: int, found: list[dict[str, Any]], **outcomes: str) -> None:
    """As `Outcomes.record` does, by the value of a record: `say(folder, 0, rows, n3="reject")`."""
    entries = [
        [row["topic"], row["partition"], row["offset"], row["deliveryCount"], outcomes[name]]
        for row in found
        if (name := f"n{row['value'].decode()}") in outcomes
    ]
    (folder / f"batch-{batch:020}.json").write_text(json.dumps(entries))


def test_records_are_released_and_rejected(stream: Stream, new_topic: NewTopic, tmp_path: Path) -> None:
    topic = new_topic(records=10)
    reader = stream(subscribe=topic, outcomes=tmp_path)
    start = reader.initialOffset()
    first = next_batch(reader, start)
    say(tmp_path, 0, rows(reader, start, first), n3="release", n4="release", n7="reject")

    second = next_batch(reader, first)

    found = rows(reader, first, second)
    assert [(row["value"], row["deliveryCount"]) for row in found] == [(b"3", 2), (b"4", 2)]
    assert reader.latestOffset(second, ALL) == second
    assert list(tmp_path.glob("*.json")) == []  # they are needed no longer


def test_a_released_record_that_the_next_run_gets_is_worked_on(
    stream: Stream, new_topic: NewTopic, tmp_path: Path
) -> None:
    """The checkpoint says that it was committed; it was released, and not left over."""
    topic = new_topic(records=10)
    before = stream(subscribe=topic, outcomes=tmp_path)
    start = before.initialOffset()
    first = next_batch(before, start)
    say(tmp_path, 0, rows(before, start, first), n3="release")
    before.commit(first)
    before.stop()

    after = stream(subscribe=topic, outcomes=tmp_path)
    second = next_batch(after, first)

    assert [(row["value"], row["deliveryCount"]) for row in rows(after, first, second)] == [(b"3", 2)]
    assert after.latestOffset(second, ALL) == second
    assert list(tmp_path.glob("*.json")) == []


def test_outcomes_of_a_batch_that_the_run_before_committed(
    stream: Stream, new_topic: NewTopic, client: Confluent, broker: OttlaBroker, group: str, tmp_path: Path
) -> None:
    """What was said is not lost with the driver: the rejected record is a dead letter, the released one returns."""
    letters = f"dlq.{group}"
    client.create_topic(letters, configs={"errors.deadletterqueue.group.enable": "true"})
    configure(broker.bootstrap, group, errors_deadletterqueue_topic_name=letters)
    topic = new_topic(records=10)
    before = stream(subscribe=topic, outcomes=tmp_path)
    start = before.initialOffset()
    first = next_batch(before, start)
    found = rows(before, start, first)
    say(tmp_path, 0, found, n3="release", n7="reject")
    before.stop()

    after = stream(subscribe=topic, outcomes=tmp_path)
    second = next_batch(after, first)

    assert {row["deadLetterTopic"] for row in found} == {letters}
    assert values(rows(after, first, second)) == [3]
    assert after.latestOffset(second, ALL) == second
    (letter,) = client.consumer(letters, BEGINNING).take(1)
    headers = dict(letter.headers)
    assert (headers["__dlq.errors.topic"], headers["__dlq.errors.offset"]) == (topic.encode(), b"7")


def test_each_query_has_a_folder_of_its_own(stream: Stream, new_topic: NewTopic, tmp_path: Path) -> None:
    topic = new_topic(records=1)
    stream(subscribe=topic, outcomes=tmp_path).latestOffset({"batch": 0}, ALL)

    with pytest.raises(OptionError, match="Another query reads outcomes from"):
        stream(subscribe=topic, outcomes=tmp_path).latestOffset({"batch": 0}, ALL)


def test_a_job_whose_source_reads_no_outcomes_is_told(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"No query reads outcomes from .* give the source the option outcomes"):
        Outcomes(tmp_path).record(None, 0)  # type: ignore[arg-type]


def test_a_file_of_something_else_is_a_sentence(stream: Stream, new_topic: NewTopic, tmp_path: Path) -> None:
    reader = stream(subscribe=new_topic(records=1), outcomes=tmp_path)
    end = next_batch(reader, {"batch": 0})
    (tmp_path / "batch-1.json").write_text('[["t", 0]]')

    with pytest.raises(PipelineError, match=r"batch-1.json is not what Outcomes.record wrote"):
        reader.latestOffset(end, ALL)
