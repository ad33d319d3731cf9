"""A query on a share group that is killed again and again, and its broker too, and a comparison with the topic.

While a producer sends records, `share_driver` works on them, which does without Spark what Spark does. By turns kill -9
ends the broker (which is started again) and the query, and SIGTERM the query. When it has caught up at the end, each
record of the topic must be in its sink: at least once, and it says how many were there twice.

    make share-kill-loop    or    python -m compat_tests.spark.endurance.share_kill_loop [--kills 60] [--broker kafka]

The exit code is 0 only if that holds.
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Final

from compat_tests.brokers.apache_kafka import ApacheKafka
from compat_tests.brokers.ottla_broker import OttlaBroker
from compat_tests.brokers.process import BrokerProcess
from compat_tests.clients.confluent import Confluent
from compat_tests.spark.endurance.kill_loop import PARTITIONS, RATE_PER_S, TOPIC, Load
from compat_tests.spark.endurance.share_driver import Folder, configure
from ottla.pipeline.client import LATEST, ClientSettings, Cluster, TopicPartition, parse_bootstrap_servers

GROUP: Final = "workers"
START_TIMEOUT_S: Final = 120.0
LONGEST_S: Final = 0.5
"""A kill comes at most so long after the first batch that the query has done since its start."""
VICTIMS: Final = ("query by kill -9", "broker", "query by SIGTERM", "query by kill -9")


class Query:
    """`share_driver`, as a process."""

    def __init__(self, broker: BrokerProcess, folder: Path, *arguments: str) -> None:
        command = [sys.executable, "-m", "compat_tests.spark.endurance.share_driver", broker.bootstrap, TOPIC, GROUP]
        with (folder / "query.log").open("a") as log:
            self.process = subprocess.Popen(
                [*command, str(folder / "checkpoint"), *arguments], stdout=subprocess.PIPE, stderr=log, text=True
            )

    def await_batch(self) -> bool:
        """Waits until it says that a batch is done; False if it ended instead, as it does when a broker is away."""
        assert self.process.stdout is not None
        return bool(self.process.stdout.readline())

    def end(self, number: int = signal.SIGKILL) -> None:
        self.process.send_signal(number)
        self.process.communicate()


def run(broker: BrokerProcess, folder: Path, kills: int, seed: int, rate_per_s: int) -> int:
    """Kills so often, lets the query catch up; the exit code of its last run."""
    Confluent(broker.bootstrap).create_topic(TOPIC, partitions=PARTITIONS)
    configure(
        broker.bootstrap,
        GROUP,
        share_auto_offset_reset="earliest",
        share_delivery_count_limit="10",
        share_record_lock_duration_ms="15000",
    )
    moments = random.Random(seed)
    load = Load(broker.bootstrap, rate_per_s)
    load.start()
    query = Query(broker, folder)
    try:
        for number in range(1, kills + 1):
            ends = 0
            while not query.await_batch():
                query.end()
                ends += 1
                if ends > kills:
                    raise ChildProcessError(f"the query ends by itself\n{(folder / 'query.log').read_text()[-3000:]}")
                query = Query(broker, folder)
            time.sleep(moments.uniform(0.0, LONGEST_S))
            victim = VICTIMS[number % len(VICTIMS)]
            if victim == "broker":
                broker.kill()
                broker.start()
            else:
                query.end(signal.SIGTERM if victim.endswith("SIGTERM") else signal.SIGKILL)
                query = Query(broker, folder)
            print(f"kill {number} of {kills}: {victim}", flush=True)
    finally:
        sent = load.stop()
        query.end()
    if sent.errors:
        raise ChildProcessError(f"the producer failed: {sent.errors[:3]}")
    last = Query(broker, folder, "--until-caught-up")
    last.process.communicate()
    return last.process.returncode


def faults(broker: BrokerProcess, folder: Path) -> tuple[list[str], int, int]:
    """What is missing or was never sent; how many records there are, and how many of them came more than once."""
    cluster = Cluster(ClientSettings(parse_bootstrap_servers(broker.bootstrap)))
    ends = cluster.offsets({TopicPartition(TOPIC, number): LATEST for number in range(PARTITIONS)})
    cluster.close()
    there = {(part.partition, offset) for part, end in ends.items() for offset in range(end)}
    found = Counter((partition, offset) for _, partition, offset, _ in Folder(folder / "checkpoint").sunk())
    wrong = {"missing": there - set(found), "never sent": set(found) - there}
    doubled = sum(count > 1 for count in found.values())
    return [f"{len(keys)} records {what}" for what, keys in wrong.items() if keys], len(there), doubled


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--broker", choices=("ottla", "kafka"), default="ottla")
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--rate", type=int, default=RATE_PER_S, help="records a second; fewer on a busy machine")
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    kind = OttlaBroker if arguments.broker == "ottla" else ApacheKafka
    with tempfile.TemporaryDirectory(prefix="share-kill-loop-") as temporary:
        folder = Path(temporary)
        broker = kind(folder / "broker")
        broker.start_timeout_s = START_TIMEOUT_S
        with broker:
            code = run(broker, folder, arguments.kills, arguments.seed, arguments.rate)
            if code != 0:
                sys.exit(f"the last run ended with exit code {code}\n{(folder / 'query.log').read_text()[-3000:]}")
            wrong, records, doubled = faults(broker, folder)
    for line in wrong:
        print(line)
    print(f"{records:,} records, {doubled} of them twice: {'FAILED' if wrong else 'none is missing'}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
