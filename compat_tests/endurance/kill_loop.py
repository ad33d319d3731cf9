"""A broker under load is ended with kill -9 again and again: nothing acknowledged may be lost, doubled or out of order.

    make kill-loop        or        python -m compat_tests.endurance.kill_loop [--kills 50]

An idempotent producer numbers its records in each partition and goes on over every kill by its own retries. In the end
each partition is read from its beginning: the numbers must be those of all records, once and in order. Beside it topics
are made and deleted, one is compacted, and a group commits its offsets (`compat_tests.endurance.kill_loop_others`).
When the broker has stopped, `ottla fsck` must find the files sound. The exit code is 0 only if all that holds.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from compat_tests.brokers.ottla_broker import OttlaBroker
from compat_tests.endurance.kill_loop_others import Committer, Compacted, Other, Passing

TOPIC, PARTITIONS = "numbers", 24
UPTIME_S = (0.05, 0.6)
SETTINGS = {"log.cleaner.backoff.ms": "200", "auto.create.topics.enable": "false"}
FLUSH_TIMEOUT_S = 120.0
READ_TIMEOUT_S = 120.0


class Load:
    """Produces numbered records until it is told to stop."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 2, "message.timeout.ms": 300_000,
             "reconnect.backoff.max.ms": 100, "log_level": 0}
        )  # fmt: skip
        self._stopping = threading.Event()
        self.sent = [0] * PARTITIONS
        self.acknowledged = 0
        self.failed = 0

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

    def stop(self) -> None:
        self._stopping.set()

    def finish(self) -> None:
        left = self._producer.flush(FLUSH_TIMEOUT_S)
        assert left == 0, f"{left} records were never answered"

    def _told(self, error: KafkaError | None, _message: Message) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self.failed += 1


def read_back(bootstrap: str, sent: list[int]) -> list[str]:
    """What is wrong with the partitions, in sentences."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "check", "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
    following = [0] * PARTITIONS
    deadline = time.monotonic() + READ_TIMEOUT_S
    while sum(following) < sum(sent) and time.monotonic() < deadline:
        for message in consumer.consume(10_000, 1.0):
            partition, value = message.partition(), message.value()
            if message.error() is not None or partition is None or value is None:
                continue
            if int(value) != following[partition]:
                return [
                    f"partition {partition}, offset {message.offset()}: {int(value)} after {following[partition] - 1}"
                ]
            following[partition] += 1
    consumer.close()
    return [f"partition {p}: {n} of {sent[p]} records" for p, n in enumerate(following) if n != sent[p]]


def check_files(broker: OttlaBroker) -> list[str]:
    """What `ottla fsck` says of the files of a broker that has stopped, unless they are sound.

    Of a topic whose deletion met a kill the data may be left: it is unknown, and goes as an operator lets it go.
    """
    command = [str(Path(sys.executable).parent / "ottla"), "fsck", "--data-dir", str(broker.folder / "data")]
    wrong = []
    for options in (["--delete-unknown", "--yes"], []):
        checked = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
        if checked.returncode != 0:
            wrong += [
                f"ottla fsck {' '.join(options)} ended with {checked.returncode}:",
                checked.stdout,
                checked.stderr,
            ]
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0, help="of the moments when the broker is killed")
    arguments = parser.parse_args()
    moments = random.Random(arguments.seed)
    with (
        tempfile.TemporaryDirectory(prefix="ottla-kill-loop-") as folder,
        OttlaBroker(Path(folder), overrides=SETTINGS) as broker,
    ):
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for created in admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)]).values():
            created.result()
        load = Load(broker.bootstrap)
        worker = threading.Thread(target=load.run, daemon=True)
        worker.start()
        bootstrap = broker.bootstrap
        others: list[Other] = [Passing(bootstrap), Compacted(bootstrap), Committer(bootstrap, TOPIC)]
        for other in others:
            other.start()
        slowest_start_s = 0.0
        for _ in range(arguments.kills):
            time.sleep(moments.uniform(*UPTIME_S))
            broker.kill()
            start = time.perf_counter()
            broker.start()
            slowest_start_s = max(slowest_start_s, time.perf_counter() - start)
        load.stop()
        worker.join()
        for other in others:
            other.stop()
        load.finish()
        wrong = read_back(broker.bootstrap, load.sent)
        for other in others:
            wrong += other.wrong()
        broker.stop()
        wrong += check_files(broker)
    print(
        f"{arguments.kills} kills, {sum(load.sent)} records sent, {load.acknowledged} acknowledged, "
        f"{load.failed} failed, slowest start {slowest_start_s:.2f} s; "
        + ", ".join(f"{type(other).__name__.lower()} {other.done} times" for other in others)
    )
    for sentence in wrong:
        print(sentence)
    ok = not wrong and not load.failed and load.acknowledged == sum(load.sent)
    print("all good" if ok else "NOT good")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
