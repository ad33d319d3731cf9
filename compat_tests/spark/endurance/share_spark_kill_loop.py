"""A query on a share group, in Spark, that is killed at the moments that matter, and a comparison with the topic.

`share_job` works on a topic's records, and ends itself with kill -9 at each of its moments in turn: between Spark's
commit of a batch and the acknowledgement, before the next batch is in the checkpoint, and before a batch is committed.
Its last run ends when the group has done with everything. Then each record must be in the sink, those that the job
released with their second delivery too, and those that it rejected must be dead letters, once each. It says how many
records were worked on more often than they were released.

    make share-kill-loop    or    python -m compat_tests.spark.endurance.share_spark_kill_loop [--kills 6]

The exit code is 0 only if all of that holds. A kill takes as long as Spark takes to start.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow.dataset as ds

from compat_tests.brokers.apache_kafka import ApacheKafka
from compat_tests.brokers.ottla_broker import OttlaBroker
from compat_tests.brokers.process import BrokerProcess
from compat_tests.clients.base import BEGINNING, Record
from compat_tests.clients.confluent import Confluent
from compat_tests.spark import session
from compat_tests.spark.endurance.share_driver import configure
from compat_tests.spark.endurance.share_job import MOMENTS, RECORDS_A_BATCH, outcome_of, sink_of
from ottla.pipeline.client import LATEST, ClientSettings, Cluster, TopicPartition, parse_bootstrap_servers

TOPIC: Final = "jobs"
LETTERS: Final = "dlq.jobs"
GROUP: Final = "workers"
PARTITIONS: Final = 2
# Only for what hangs.
RUN_TIMEOUT_S: Final = 900.0
START_TIMEOUT_S: Final = 120.0


class Found(NamedTuple):
    """What the sink and the dead letters have otherwise than they should; how often records were worked on again."""

    wrong: list[str]
    records: int
    doubled: int


def run(broker: BrokerProcess, folder: Path, kills: int) -> Found:
    """Kill so often, catch up, and compare. ChildProcessError if a run does not end as it should."""
    client = Confluent(broker.bootstrap)
    client.create_topic(TOPIC, partitions=PARTITIONS)
    client.create_topic(LETTERS, configs={"errors.deadletterqueue.group.enable": "true"})
    configure(
        broker.bootstrap,
        GROUP,
        share_auto_offset_reset="earliest",
        share_record_lock_duration_ms="15000",
        errors_deadletterqueue_topic_name=LETTERS,
    )
    # Two batches for each kill, and some for the last run.
    records = (2 * kills + 3) * RECORDS_A_BATCH
    producer = client.producer()
    producer.send(TOPIC, [Record(b"%d" % number, partition=number % PARTITIONS) for number in range(records)])
    producer.close()
    for number in range(kills):
        moment = MOMENTS[number % len(MOMENTS)]
        _start(broker, folder, "--die", moment, expected=-signal.SIGKILL)
        print(f"kill {number + 1} of {kills}: {moment}", flush=True)
    _start(broker, folder, expected=0)
    return compare(broker, folder, records)


def _start(broker: BrokerProcess, folder: Path, *arguments: str, expected: int) -> None:
    command = [sys.executable, "-m", "compat_tests.spark.endurance.share_job", broker.bootstrap, TOPIC, GROUP]
    log = folder / "job.log"
    with log.open("a") as out:
        job = subprocess.run(
            [*command, str(folder), *arguments],
            cwd=session.ROOT,
            stdout=out,
            stderr=out,
            start_new_session=True,
            timeout=RUN_TIMEOUT_S,
            check=False,
        )
    if job.returncode != expected:
        raise ChildProcessError(f"a run ended with {job.returncode}, not {expected}\n{log.read_text()[-3000:]}")


def compare(broker: BrokerProcess, folder: Path, records: int) -> Found:
    """The sink's rows and the dead letters beside what was sent."""
    table = ds.dataset(sink_of(folder), format="parquet", exclude_invalid_files=True, ignore_prefixes=["_", "."])
    rows = table.to_table(columns=["value", "deliveryCount"]).to_pylist()
    worked = Counter(row["value"] for row in rows)
    again = {row["value"] for row in rows if row["deliveryCount"] > 1}
    released = {value for value in range(records) if outcome_of(value, 1) == "release"}
    rejected = Counter(value for value in range(records) if outcome_of(value, 1) == "reject")
    letters = _dead_letters(broker)
    wrong = {
        "records missing": set(range(records)) - set(worked),
        "records never sent": set(worked) - set(range(records)),
        "released records that did not come again": released - again,
        "dead letters missing": set(rejected - letters),
        "dead letters too many": set(letters - rejected),
    }
    doubled = sum(count - 1 - (value in released) for value, count in worked.items())
    return Found([f"{len(values)} {what}" for what, values in wrong.items() if values], records, doubled)


def _dead_letters(broker: BrokerProcess) -> Counter[int]:
    """The values of the records that became dead letters, which name them by partition and offset."""
    cluster = Cluster(ClientSettings(parse_bootstrap_servers(broker.bootstrap)))
    count = sum(cluster.offsets({TopicPartition(LETTERS, 0): LATEST}).values())
    cluster.close()
    consumer = Confluent(broker.bootstrap).consumer(LETTERS, BEGINNING)
    letters = consumer.take(count)
    consumer.close()
    found: Counter[int] = Counter()
    for letter in letters:
        headers = dict(letter.headers)
        partition = int(headers["__dlq.errors.partition"] or b"")
        # Records were sent to the partitions in turn.
        found[int(headers["__dlq.errors.offset"] or b"") * PARTITIONS + partition] += 1
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--broker", choices=("ottla", "kafka"), default="ottla")
    parser.add_argument("--kills", type=int, default=2 * len(MOMENTS))
    arguments = parser.parse_args()
    kind = OttlaBroker if arguments.broker == "ottla" else ApacheKafka
    with tempfile.TemporaryDirectory(prefix="share-spark-kill-loop-") as temporary:
        broker = kind(Path(temporary) / "broker")
        broker.start_timeout_s = START_TIMEOUT_S
        with broker:
            found = run(broker, Path(temporary), arguments.kills)
    for line in found.wrong:
        print(line)
    end = "FAILED" if found.wrong else "none is missing"
    print(json.dumps({"records": found.records, "doubled": found.doubled}), end, flush=True)
    sys.exit(1 if found.wrong else 0)


if __name__ == "__main__":
    main()
