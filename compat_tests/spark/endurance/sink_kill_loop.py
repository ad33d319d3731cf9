"""A stream from topic to topic that is killed again and again, and its broker too, and a comparison of both topics.

While a producer sends numbered records, `sink_job` copies them by `format("ottla")`. By turns kill -9 ends the broker
(which is started again), the job with its JVM, and the job alone, whose JVM goes on for a while beside the next job.
When the job has caught up at the end, a reader of committed records must find in the target exactly what is in the
source.

    make sink-kill-loop    or    python -m compat_tests.spark.endurance.sink_kill_loop [--kills 20] [--broker kafka]

With `--small` the job is `small_driver`, which does without Spark what Spark does, and is killed far more often.

The exit code is 0 only if that holds.
"""

from __future__ import annotations

import argparse
import os
import random
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, KafkaError
from confluent_kafka import TopicPartition as ConfluentPartition

from compat_tests.brokers.apache_kafka import ApacheKafka
from compat_tests.brokers.ottla_broker import OttlaBroker
from compat_tests.brokers.process import BrokerProcess
from compat_tests.clients.confluent import Confluent
from compat_tests.spark import session
from compat_tests.spark.endurance.kill_loop import PARTITIONS, RATE_PER_S, TOPIC, Load

TARGET: Final = "copies"
BATCH_TIMEOUT_S: Final = 1800.0
READ_TIMEOUT_S: Final = 120.0
START_TIMEOUT_S: Final = 120.0
LONGEST_S: Final = {"sink_job": 3.0, "small_driver": 0.5}
"""A kill comes at most so long after the first batch that the job has done since its start."""

Records = Counter[tuple[bytes | None, bytes | None]]


class Job:
    """`sink_job` or `small_driver`, as a process group of its own."""

    def __init__(self, program: str, broker: BrokerProcess, folder: Path, *arguments: str) -> None:
        command = [sys.executable, "-m", f"compat_tests.spark.endurance.{program}", broker.bootstrap, TOPIC, TARGET]
        with (folder / "job.log").open("a") as log:
            self._process = subprocess.Popen(
                [*command, str(folder / "checkpoint"), *arguments],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )

    def await_batch(self) -> bool:
        """Waits until it says that a batch is done; False if it ended instead, as it does when a broker is away."""
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            if not selector.select(BATCH_TIMEOUT_S):
                raise TimeoutError("the job did no batch in time")
        return bool(self._process.stdout.readline())

    def kill(self, *, with_jvm: bool) -> None:
        """kill -9 of Python, and of its JVM; without it the JVM notices by itself."""
        if with_jvm:
            os.killpg(self._process.pid, signal.SIGKILL)
        else:
            self._process.kill()
        self._process.communicate()

    def finish(self) -> int:
        """Waits for its end; the exit code."""
        self._process.communicate()
        return self._process.returncode


def run(program: str, broker: BrokerProcess, folder: Path, kills: int, seed: int, rate_per_s: int) -> int:
    """Kills so often, lets the job catch up; the exit code of its last run."""
    client = Confluent(broker.bootstrap)
    for topic in (TOPIC, TARGET):
        client.create_topic(topic, partitions=PARTITIONS)
    moments = random.Random(seed)
    load = Load(broker.bootstrap, rate_per_s)
    load.start()
    job: Job | None = None
    ends = 0
    try:
        for number in range(1, kills + 1):
            began = time.monotonic()
            job = job or Job(program, broker, folder)
            while not job.await_batch():
                job.finish()
                ends += 1
                if ends > kills:
                    raise ChildProcessError(f"the job ends by itself\n{(folder / 'job.log').read_text()[-3000:]}")
                job = Job(program, broker, folder)
            time.sleep(moments.uniform(0.0, LONGEST_S[program]))
            victim = ("broker", "job with JVM", "job")[number % 3]
            if victim == "broker":
                broker.kill()
                broker.start()
            else:
                job.kill(with_jvm=victim == "job with JVM")
                job = None
            print(f"kill {number} of {kills}: {victim}, after {time.monotonic() - began:.1f} s", flush=True)
    finally:
        load.stop()
        if job is not None:
            job.kill(with_jvm=True)
    return Job(program, broker, folder, "--until-caught-up").finish()


def committed(broker: BrokerProcess, topic: str) -> Records:
    """The keys and values that a reader of committed records finds, and how often."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "sink-kill-loop",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([ConfluentPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    found: Records = Counter()
    left = set(range(PARTITIONS))
    deadline = time.monotonic() + READ_TIMEOUT_S
    while left:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{topic} could not be read to its end")
        message = consumer.poll(1.0)
        if message is None:
            continue
        partition = message.partition()
        assert partition is not None
        if (error := message.error()) is None:
            found[message.key(), message.value()] += 1
        elif error.code() == KafkaError._PARTITION_EOF:
            left.discard(partition)
    consumer.close()
    return found


def faults(source: Records, target: Records) -> list[str]:
    """What is not as it was sent."""
    differences = {"missing": source - target, "too many": target - source}
    return [f"{found.total()} records {what}" for what, found in differences.items() if found]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--broker", choices=("ottla", "kafka"), default="ottla")
    parser.add_argument("--small", action="store_true", help="without Spark")
    parser.add_argument("--kills", type=int, help="default: 20, and 200 without Spark")
    parser.add_argument("--rate", type=int, default=RATE_PER_S, help="records a second; fewer on a busy machine")
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    arguments = parser.parse_args()
    program = "small_driver" if arguments.small else "sink_job"
    arguments.kills = arguments.kills or (200 if arguments.small else 20)
    if not arguments.small and (reason := session.missing()):
        parser.exit(2, f"{reason}\n")
    print(f"seed {arguments.seed}", flush=True)
    kind = OttlaBroker if arguments.broker == "ottla" else ApacheKafka
    with tempfile.TemporaryDirectory(prefix="sink-kill-loop-") as temporary:
        folder = Path(temporary)
        broker = kind(folder / "broker")
        broker.start_timeout_s = START_TIMEOUT_S
        with broker:
            code = run(program, broker, folder, arguments.kills, arguments.seed, arguments.rate)
            if code != 0:
                sys.exit(f"the last run ended with exit code {code}\n{(folder / 'job.log').read_text()[-3000:]}")
            source, target = committed(broker, TOPIC), committed(broker, TARGET)
    wrong = faults(source, target)
    for line in wrong:
        print(line)
    print(f"{source.total():,} records: {'FAILED' if wrong else 'each was copied once'}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
