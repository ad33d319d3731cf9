"""`ottla mirror`, with a source and a mirror that are processes."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from ottla.cli import main
from ottla.cli.mirror import promote as mirror_promote
from ottla.cli.mirror.progress import MirrorBar
from ottla.cli.mirror.state import Comparison
from ottla.client.offsets import TopicPartition
from tests.cli.conftest import Broker


@pytest.fixture
def source(tmp_path: Path) -> Iterator[Broker]:
    running = Broker(tmp_path / "source")
    yield running
    if running.process.poll() is None:
        assert running.stop() == 0


def test_a_source_without_topic_ids_is_refused(tmp_path: Path) -> None:
    source = Broker(tmp_path / "source", "--set", "ottla.kafka.release=2.8")
    here = Broker(tmp_path / "mirror")
    refused = here.run("mirror", "start", "--from", source.address, check=False)
    assert refused.returncode == 1
    assert b"older than Kafka 3.1" in refused.stderr
    assert b"mirrors nothing" in here.run("mirror", "status").stdout
    assert (here.stop(), source.stop()) == (0, 0)


def test_a_move_from_one_cluster_to_another(source: Broker, tmp_path: Path) -> None:
    source.run("topic", "create", "orders", "--partitions", "2")
    source.run("produce", "orders", stdin=b"one\ntwo\nthree\n")
    source.run("consume", "orders", "--group", "billing", "--count", "2")
    here = Broker(tmp_path / "mirror", "--set", "ottla.mirror.interval.ms=200")
    try:
        nothing = here.run("mirror", "promote", check=False)
        assert nothing.returncode == 1
        assert b"nothing to promote" in nothing.stderr
        itself = here.run("mirror", "start", "--from", here.address, check=False)
        assert b"is this cluster itself" in itself.stderr
        begun = here.run("mirror", "start", "--from", source.address, "--topics", "ord*", "--wait")
        assert b"the same here as there: 1 topic, 3 offsets" in begun.stdout
        refused = here.run("produce", "orders", stdin=b"mine\n", check=False)
        assert b"INVALID_REQUEST" in refused.stderr

        here.stop(signal.SIGKILL)
        source.run("produce", "orders", stdin=b"four\n")
        here = Broker(tmp_path / "mirror", "--set", "ottla.mirror.interval.ms=200")
        promoted = here.run("mirror", "promote", "--wait", "30")  # which waits until all is copied
        assert b"writable here now: 1 topic\n" in promoted.stdout
        assert here.address.encode() in promoted.stdout
        status = json.loads(here.run("mirror", "status", "--json").stdout)
        assert status == {"source": None, "topics": []}

        here.run("produce", "orders", stdin=b"five\n")
        left = here.run("consume", "orders", "--group", "billing").stdout.split()
        assert len(left) == 3
        everything = here.run("consume", "orders").stdout.split()
        assert sorted(everything) == [b"five", b"four", b"one", b"three", b"two"]
    finally:
        here.stop()


def test_a_promotion_commits_what_the_source_commits_at_the_last_moment(
    source: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is copied any more when the source decides; a transaction that it does not decide about is aborted."""
    source.run("topic", "create", "orders")
    producers = {}
    for name in ("decided", "undecided"):
        settings = {"bootstrap.servers": source.address, "transactional.id": name, "transaction.timeout.ms": 600_000}
        producers[name] = producer = Producer(settings)
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce("orders", name)
        producer.flush(30)
    here = Broker(tmp_path / "mirror", "--set", "ottla.mirror.interval.ms=200")
    try:
        here.run("mirror", "start", "--from", source.address, "--wait")
        wait_until_known = mirror_promote._wait_until_known

        def commit_when_all_know(*arguments: Any) -> None:
            wait_until_known(*arguments)
            producers["decided"].commit_transaction(30)

        monkeypatch.setattr(mirror_promote, "_wait_until_known", commit_when_all_know)
        # The marker that the source has written then is not copied, but written here.
        assert main(["mirror", "promote", "-b", here.address]) == 1
        monkeypatch.undo()
        assert here.run("consume", "orders", "--read-committed").stdout.split() == [b"decided"]
    finally:
        here.stop()


def test_the_line_says_how_far_it_is() -> None:
    bar = MirrorBar()
    parts = {TopicPartition("orders", 0): 600, TopicPartition("orders", 1): 400}
    assert "[...." in bar.line(Comparison(["orders"], 1000, parts), 10.0)
    text = bar.line(Comparison(["orders"], 1000, {TopicPartition("orders", 0): 500}), 15.0)
    assert text.startswith("mirroring [###############...............]  50%  1 topic, 500 of 1,000 records")
    assert text.endswith(", lag 500, 100 a second, 5 s left")
    assert "100%" in bar.line(Comparison([], 0, {}), 20.0)
