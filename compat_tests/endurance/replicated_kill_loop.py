"""Nodes are killed, frozen, stopped and cut off under load: nothing acknowledged is lost, doubled or out of order.

    make replicated-kill-loop    or    python -m compat_tests.endurance.replicated_kill_loop [--faults 60] [--seed 0]

Three nodes hold three replicas of each partition, of which two must be in sync. The links between them are proxies that
can be cut; they agree through etcd, which is killed and frozen as well, or with `--metadata sqlite` through a file.

An idempotent producer with acks=all numbers its records in each partition and goes on over every fault by its own
retries. In the end each partition is read from its beginning: the numbers must be those of all records, once and in
order; and the replicas must be equal, byte for byte. Beside it a topic is compacted, a group commits its offsets and
transactions end, over coordinators that move. The exit code is 0 only if all that holds.
"""

from __future__ import annotations

import argparse
import logging
import random
import re
import shutil
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from compat_tests.brokers.laboratory import NODES, SETTINGS
from compat_tests.brokers.links import Links
from compat_tests.brokers.node_faults import UPTIME_S, Faults
from compat_tests.endurance.kill_loop_others import Committer, Compacted, Other, Transactions
from compat_tests.endurance.replica_checks import REPLICAS, compare_replicas, wait_until_in_sync
from ottla.client.addresses import parse_addresses
from ottla.client.client import Client
from ottla.kproto.messages.data.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.kproto.records import BatchHeader, iter_batches
from ottla.testing import Cluster
from tests.etcd import Etcd

TOPIC, PARTITIONS = "numbers", 12
KINDS = ("kill", "stop", "kill_all", "freeze", "kill_two", "kill", "cut", "reset", "cut_two", "freeze_two")
"""Each at least once, in this order; then at random."""
KINDS_OF_ETCD = ("kill_etcd", "freeze_etcd", "kill_node_without_etcd", "cut_without_etcd")

IN_SYNC_BETWEEN = 0.7
"""How often all replicas are in sync again before the next fault."""

PAUSE_S = 0.005
"""Between one record for each partition and the next: the faults are to be tried, not the throughput."""
FLUSH_TIMEOUT_S = 180.0
READ_TIMEOUT_S = 120.0


class SkippedSequences(logging.Handler):
    """Counts why librdkafka says that a batch was out of order: the error of the batch before it."""

    def __init__(self) -> None:
        super().__init__()
        self.causes: Counter[str] = Counter()

    def emit(self, record: logging.LogRecord) -> None:
        found = re.search(r"skipped sequence numbers .*previous failed request \((\w+)", record.getMessage())
        if found and found[1] != "OUT_OF_ORDER_SEQUENCE_NUMBER":  # else it follows from the one before
            self.causes[found[1]] += 1


class Load:
    """Produces numbered records until it is told to stop, and times the gaps between acknowledgements."""

    def __init__(self, bootstrap: str) -> None:
        self.skipped = SkippedSequences()
        logger = logging.Logger("producer")
        logger.addHandler(self.skipped)
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 2, "message.timeout.ms": 300_000,
             "reconnect.backoff.max.ms": 100, "retry.backoff.ms": 20, "retry.backoff.max.ms": 100, "debug": "eos",
             "topic.metadata.refresh.fast.interval.ms": 50, "acks": "all"},
            logger=logger,
        )  # fmt: skip
        self._stopping = threading.Event()
        self._last = time.monotonic()
        self._gap_s = 0.0
        self.sent = [0] * PARTITIONS
        self.acknowledged = 0
        self.failed: Counter[str] = Counter()

    def run(self) -> None:
        partition = 0
        while not self._stopping.is_set():
            try:
                self._producer.produce(TOPIC, b"%d" % self.sent[partition], partition=partition, on_delivery=self._told)
            except BufferError:
                self._producer.poll(0.05)
                continue
            self.sent[partition] += 1
            partition = (partition + 1) % PARTITIONS
            self._producer.poll(0)
            if not partition:
                time.sleep(PAUSE_S)

    def stop(self) -> None:
        self._stopping.set()

    def finish(self) -> None:
        left = self._producer.flush(FLUSH_TIMEOUT_S)
        assert left == 0, f"{left} records were never answered"

    def take_gap_s(self) -> float:
        """The longest time without any acknowledgement since it was asked last."""
        gap_s, self._gap_s = max(self._gap_s, time.monotonic() - self._last), 0.0
        return gap_s

    def _told(self, error: KafkaError | None, _message: Message) -> None:
        if error is None:
            now = time.monotonic()
            self._gap_s = max(self._gap_s, now - self._last)
            self._last = now
            self.acknowledged += 1
        else:
            self.failed[error.str()] += 1


class ReadBack(NamedTuple):
    """What is wrong with the partitions, in sentences; and how many records the client wrote again in a new epoch."""

    wrong: list[str]
    rewritten: int


def read_back(bootstrap: str, sent: list[int]) -> ReadBack:
    """Read every partition from its beginning: the numbers must be those of all records, once and in order.

    librdkafka takes a new producer epoch when a batch is out of order because one before it was refused, in whatever
    partition: it comes as soon as enough replicas are in sync, and the one before had come too early. Then it sends all
    again that was not acknowledged, also what has been written. The broker cannot tell such records from new ones, so
    they may be there twice: in another epoch, and in order.
    """
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "check", "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
    following = [0] * PARTITIONS
    rewritten = 0
    deadline = time.monotonic() + READ_TIMEOUT_S
    while sum(following) < sum(sent) and time.monotonic() < deadline:
        for message in consumer.consume(10_000, 1.0):
            partition, offset, value = message.partition(), message.offset(), message.value()
            if message.error() is not None or partition is None or offset is None or value is None:
                continue
            expected, number = following[partition], int(value)
            if number != expected:
                now = batch_of(bootstrap, partition, offset)
                before = batch_of(bootstrap, partition, max(0, offset - max(1, expected - number)))
                if number > expected or before.producer_epoch >= now.producer_epoch:
                    wrong = f"partition {partition}, offset {offset}: {number} after {expected - 1}"
                    return ReadBack([f"{wrong}; written by {describe(before)} and {describe(now)}"], rewritten)
                rewritten += expected - number
            following[partition] = number + 1
    consumer.close()
    return ReadBack(
        [f"partition {p}: {n} of {sent[p]} records" for p, n in enumerate(following) if n != sent[p]], rewritten
    )


def batch_of(bootstrap: str, index: int, offset: int) -> BatchHeader:
    """The header of the batch that holds an offset."""
    with Client(parse_addresses(bootstrap), 10) as asked:
        found = asked.topic(TOPIC)
        partition = FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1)
        topic = FetchTopic(topic_id=found.topic_id, partitions=[partition])
        leader_id = next(it.leader_id for it in found.partitions if it.partition_index == index)
        answer = asked.broker(leader_id).call(FetchRequest(topics=[topic], max_wait_ms=0, min_bytes=0))
    _, header = next(iter_batches(bytes(answer.responses[0].partitions[0].records)))
    return header


def describe(batch: BatchHeader) -> str:
    return (
        f"producer {batch.producer_id} epoch {batch.producer_epoch}, sequence {batch.base_sequence}, "
        f"in leader epoch {batch.leader_epoch}, at {batch.base_offset}"
    )


class Outcome(NamedTuple):
    """What came of it: a line for people, and what is wrong, in sentences."""

    summary: str
    wrong: list[str]


def run(
    faults: int, seed: int, data_dir: str | None = None, kinds: Sequence[str] = (), *, with_etcd: bool = False
) -> Outcome:
    """So many faults, of these kinds, by default of all; `seed` decides what happens and when."""
    moments = random.Random(seed)
    gaps_s: dict[str, list[float]] = {}
    kinds = kinds or (KINDS + KINDS_OF_ETCD if with_etcd else KINDS)
    with ExitStack() as stack:
        etcd = None
        config: dict[str, object] = {**SETTINGS}
        if with_etcd:
            folder = stack.enter_context(TemporaryDirectory(prefix="etcd-"))
            etcd = Etcd(Path(folder))
            stack.callback(etcd.close)
            etcd.start()
            config["ottla.metadata.store"] = f"etcd://{etcd.hosts}/kill-loop"
            config["broker.session.timeout.ms"] = "2000"
        links = Links(NODES)
        stack.callback(links.close)
        cluster = stack.enter_context(Cluster(3, config=config, node_config=links.node_config, data_dir=data_dir))
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        for created in admin.create_topics([NewTopic(TOPIC, PARTITIONS, REPLICAS)]).values():
            created.result()
        load = Load(cluster.bootstrap)
        worker = threading.Thread(target=load.run, daemon=True)
        worker.start()
        bootstrap = cluster.bootstrap
        others: list[Other] = [
            Compacted(bootstrap, REPLICAS),
            Committer(bootstrap, TOPIC),
            Transactions(bootstrap, REPLICAS),
        ]
        for other in others:
            other.start()
        of_nodes = Faults(cluster, links, etcd, moments)
        for number in range(faults):
            time.sleep(moments.uniform(*UPTIME_S))
            load.take_gap_s()
            kind = kinds[number] if number < len(kinds) else moments.choice(kinds)
            if not number % 10:
                print(f"{number} of {faults} faults", file=sys.stderr, flush=True)
            getattr(of_nodes, kind)()
            if moments.random() < IN_SYNC_BETWEEN:
                wait_until_in_sync(cluster, TOPIC)
            gaps_s.setdefault(kind, []).append(load.take_gap_s())
        load.stop()
        worker.join()
        for other in others:
            other.stop()
        load.finish()
        wait_until_in_sync(cluster, TOPIC)
        wrong, rewritten = read_back(cluster.bootstrap, load.sent)
        wrong += compare_replicas(cluster, TOPIC)
        for other in others:
            wrong += other.wrong()
    wrong += [f"{count} records failed: {error}" for error, count in load.failed.items()]
    if load.acknowledged + load.failed.total() != sum(load.sent):
        wrong.append(f"{load.acknowledged} of {sum(load.sent)} records were answered")
    gaps = ", ".join(f"{kind} {max(gaps):.1f} s ({len(gaps)} times)" for kind, gaps in sorted(gaps_s.items()))
    done = ", ".join(f"{type(other).__name__.lower()} {other.done} times" for other in others)
    summary = f"{faults} faults, {load.acknowledged} records acknowledged, {done}; longest gaps: {gaps}"
    if rewritten:
        causes = ", ".join(f"{cause} ({count} times)" for cause, count in load.skipped.causes.items())
        summary += f"; {rewritten} records were written again by the client in a new producer epoch, after {causes}"
    if of_nodes.slow_starts:
        summary += f"; {of_nodes.slow_starts} starts took longer than the half minute that is waited for them"
    return Outcome(summary, wrong)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--faults", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0, help="of what happens and when")
    parser.add_argument("--data-dir", help="keep the data here (default: a temporary folder)")
    parser.add_argument("--metadata", choices=("etcd", "sqlite"), default="etcd" if shutil.which("etcd") else "sqlite")
    arguments = parser.parse_args()
    with_etcd = arguments.metadata == "etcd"
    outcome = run(arguments.faults, arguments.seed, arguments.data_dir, with_etcd=with_etcd)
    print(outcome.summary)
    for sentence in outcome.wrong:
        print(sentence)
    print("NOT good" if outcome.wrong else "all good")
    return 1 if outcome.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
