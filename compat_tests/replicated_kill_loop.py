"""Nodes are killed, frozen, stopped and cut off under load: nothing acknowledged is lost, doubled or out of order.

    make replicated-kill-loop        or        python -m compat_tests.replicated_kill_loop [--faults 60] [--seed 0]

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
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from compat_tests.kill_loop_others import Committer, Compacted, Other, Transactions
from compat_tests.links import Links
from ottla.client.addresses import parse_addresses
from ottla.client.client import Client
from ottla.kproto.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.kproto.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.kproto.records import BatchHeader, iter_batches
from ottla.testing import BrokerError, Cluster
from tests.etcd import Etcd

TOPIC, PARTITIONS, REPLICAS = "numbers", 12, 3
SETTINGS = {
    "auto.create.topics.enable": "false",
    "log.cleaner.backoff.ms": "200",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "replica.lag.time.max.ms": "3000",
    "broker.session.timeout.ms": "1500",
    "broker.heartbeat.interval.ms": "200",
}
KINDS = ("kill", "stop", "kill_all", "freeze", "kill_two", "kill", "cut", "reset", "cut_two", "freeze_two")
"""Each at least once, in this order; then at random."""
KINDS_OF_ETCD = ("kill_etcd", "freeze_etcd", "kill_node_without_etcd", "cut_without_etcd")

IN_SYNC_BETWEEN = 0.7
"""How often all replicas are in sync again before the next fault."""

UPTIME_S = (0.1, 1.5)
FREEZE_S = (0.3, 4.0)
CUT_S = (0.5, 6.0)
IN_SYNC_S = 60.0
PAUSE_S = 0.005
"""Between one record for each partition and the next: the faults are to be tried, not the throughput."""
FLUSH_TIMEOUT_S = 180.0
READ_TIMEOUT_S = 120.0


class SkippedSequences(logging.Handler):
    """Counts why librdkafka says that batches were out of order: the error of the batch before them."""

    def __init__(self) -> None:
        super().__init__()
        self.causes: Counter[str] = Counter()

    def emit(self, record: logging.LogRecord) -> None:
        if found := re.search(r"skipped sequence numbers .*previous failed request \((\w+)", record.getMessage()):
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


class Faults:
    """What happens to nodes; each ends with all of them running."""

    def __init__(self, cluster: Cluster, links: Links, etcd: Etcd | None, moments: random.Random) -> None:
        self._cluster = cluster
        self._links = links
        self._etcd = etcd
        self._moments = moments
        #: How often a process took longer to start than a test would wait, on a machine that has much to do.
        self.slow_starts = 0

    def kill(self) -> None:
        (node,) = self._some(1)
        self._cluster.kill(node)
        self._wait(*UPTIME_S)
        self._start(node)

    def kill_two(self) -> None:
        nodes = self._some(2)
        for node in nodes:
            self._cluster.kill(node)
        self._wait(*UPTIME_S)
        self._start(*nodes)

    def kill_all(self) -> None:
        self._cluster.kill()
        self._start(*self._cluster.node_ids)

    def freeze(self) -> None:
        (node,) = self._some(1)
        with self._cluster.paused(node):
            self._wait(*FREEZE_S)

    def stop(self) -> None:
        (node,) = self._some(1)
        self._cluster.stop(node)
        self._start(node)

    def freeze_two(self) -> None:
        first, second = self._some(2)
        with self._cluster.paused(first), self._cluster.paused(second):
            self._wait(*FREEZE_S)

    def cut(self) -> None:
        with self._cut_off(*self._some(1)):
            self._wait(*CUT_S)

    def cut_two(self) -> None:
        with self._cut_off(*self._some(2)):
            self._wait(*CUT_S)

    def reset(self) -> None:
        for link in self._links.to.values():
            link.reset()

    def kill_etcd(self) -> None:
        with self._without_etcd():
            self._wait(*CUT_S)

    def freeze_etcd(self) -> None:
        assert self._etcd is not None
        self._etcd.pause(0)
        self._wait(*FREEZE_S)
        self._etcd.resume(0)

    def kill_node_without_etcd(self) -> None:
        (node,) = self._some(1)
        with self._without_etcd():
            self._cluster.kill(node)
            self._wait(*UPTIME_S)
        self._start(node)

    def cut_without_etcd(self) -> None:
        with self._cut_off(*self._some(1)), self._without_etcd():
            self._wait(*CUT_S)

    def _start(self, *nodes: int) -> None:
        for node in nodes:
            try:
                self._cluster.start(node)
            except BrokerError:
                self.slow_starts += 1
                self._cluster.start(node)

    @contextmanager
    def _cut_off(self, *nodes: int) -> Iterator[None]:
        for node in nodes:
            self._links.to[node].cut()
        yield
        for node in nodes:
            self._links.to[node].mend()

    @contextmanager
    def _without_etcd(self) -> Iterator[None]:
        assert self._etcd is not None
        self._etcd.kill()
        yield
        self._etcd.start()

    def _some(self, count: int) -> list[int]:
        return self._moments.sample(self._cluster.node_ids, count)

    def _wait(self, least_s: float, most_s: float) -> None:
        time.sleep(self._moments.uniform(least_s, most_s))


def addresses(cluster: Cluster) -> list[tuple[str, int]]:
    """Of the nodes, in the order of their ids."""
    parts = (address.rpartition(":") for address in map(cluster.address, cluster.node_ids))
    return [(host, int(port)) for host, _, port in parts]


def wait_until_in_sync(cluster: Cluster) -> None:
    """All replicas are in sync again, as everybody sees it."""
    deadline = time.monotonic() + IN_SYNC_S
    while True:
        with Client(addresses(cluster), 10) as asked:
            partitions = asked.topic(TOPIC).partitions
            if all(len(it.isr_nodes) == REPLICAS and it.leader_id > 0 for it in partitions):
                return
        if time.monotonic() > deadline:
            states = [(it.partition_index, it.leader_id, list(it.isr_nodes)) for it in partitions]
            raise AssertionError(f"not in sync within {IN_SYNC_S:g} s: (partition, leader, in sync) {states}")
        time.sleep(0.05)


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


def compare_replicas(cluster: Cluster) -> list[str]:
    """Read each partition from each node, as a consumer reads from a follower, and compare the bytes."""
    wrong = []
    with ExitStack() as stack:
        asked = stack.enter_context(Client(addresses(cluster), 10))
        nodes = {
            node_id: stack.enter_context(Client([address], 10)).any_broker()
            for node_id, address in zip(cluster.node_ids, addresses(cluster), strict=True)
        }
        topics = [MetadataRequestTopic(name=TOPIC)]
        topic_id = asked.call(MetadataRequest(topics=topics, allow_auto_topic_creation=False)).topics[0].topic_id
        for index in range(PARTITIONS):
            replicas = {}
            for node_id in cluster.node_ids:
                data, offset, end_offset = b"", 0, 1
                while offset < end_offset:
                    partition = FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
                    topic = FetchTopic(topic_id=topic_id, partitions=[partition])
                    answer = nodes[node_id].call(FetchRequest(topics=[topic], max_wait_ms=0, min_bytes=0))
                    got = answer.responses[0].partitions[0]
                    if got.error_code:
                        return [f"node {node_id} answers a read of {TOPIC}-{index} with error {got.error_code}"]
                    end_offset = got.high_watermark
                    records = bytes(got.records)
                    data += records
                    offset = next_offset(records, offset)
                    if not records:
                        break
                replicas[node_id] = (offset, data)
            if len(set(replicas.values())) > 1:
                ends = {node_id: (offset, len(data)) for node_id, (offset, data) in replicas.items()}
                wrong.append(f"the replicas of partition {index} differ: (end offset, bytes) by node {ends}")
    return wrong


def next_offset(records: bytes, offset: int) -> int:
    """The offset behind the last of some batches."""
    position = 0
    while position < len(records):
        base = int.from_bytes(records[position : position + 8], "big")
        size_bytes = int.from_bytes(records[position + 8 : position + 12], "big") + 12
        offset = base + int.from_bytes(records[position + 23 : position + 27], "big") + 1
        position += size_bytes
    return offset


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
        links = Links((1, 2, 3))
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
                wait_until_in_sync(cluster)
            gaps_s.setdefault(kind, []).append(load.take_gap_s())
        load.stop()
        worker.join()
        for other in others:
            other.stop()
        load.finish()
        wait_until_in_sync(cluster)
        wrong, rewritten = read_back(cluster.bootstrap, load.sent)
        wrong += compare_replicas(cluster)
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
