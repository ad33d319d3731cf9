"""A table job that is killed again and again, and a check of every row.

While a producer sends numbered records, `ottla table sync` keeps tables of the topic: Delta, Parquet and Iceberg, which
take every record, and Delta and Iceberg by key, with tombstones. Every hundredth value is one of `hostile`, and others
are 100 KB long or have a key twice. The job is ended with kill -9 at random moments, by turns with Spark's JVM
and without, and started again. On the way its settings change: those that may, and those that it must refuse. It is
started beside itself, which it must refuse too, and twice at the same moment, when one of the two must. When it has
caught up at the end, each table must hold exactly what was produced, and so must the dead letters.

    make table-kill-loop        or        python -m compat_tests.spark.endurance.kill_loop [--kills 20] [--source kafka]

The exit code is 0 only if all of that holds.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaError, Message, Producer
from pyspark.sql import DataFrame, SparkSession

from compat_tests.brokers.apache_kafka import ApacheKafka
from compat_tests.brokers.ottla_broker import OttlaBroker
from compat_tests.brokers.process import BrokerProcess
from compat_tests.clients.confluent import Confluent
from compat_tests.spark import session
from compat_tests.spark.hostile import HOSTILE, with_a_doubled_key, with_much_beside
from ottla.pipeline.tables.iceberg.catalogue import open_catalogue

TOPIC: Final = "numbers"
PARTITIONS: Final = 4
KEYS: Final = 500
RATE_PER_S: Final = 1_000
FIRST_BATCH_TIMEOUT_S: Final = 1800.0
FLUSH_TIMEOUT_S: Final = 60.0
LEAST_KILLS_WITH_CHANGES: Final = 4
ANOTHER_RUNS: Final = "Another job that runs now has the checkpoint"

CONFIG: Final = """
bootstrap = "{bootstrap}"
checkpoint = "{folder}/checkpoints"
trigger = "{trigger}"
interval = "0 seconds"
source = "{source}"

[spark]
"spark.master" = "local[2]"
"spark.jars" = "{jars}"
"spark.driver.host" = "127.0.0.1"
"spark.driver.bindAddress" = "127.0.0.1"
"spark.driver.memory" = "1g"
"spark.driver.extraJavaOptions" = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC"
"spark.sql.shuffle.partitions" = "2"
"spark.sql.codegen.wholeStage" = "false"
"spark.sql.adaptive.enabled" = "false"
"spark.databricks.delta.snapshotPartitions" = "1"

[iceberg]
"warehouse" = "{folder}/lake"

[[tables]]
name = "delta"
topic = "{topic}"
path = "{folder}/delta"
schema = "n BIGINT, key STRING"
max_offsets_per_batch = {batch}
compact_every_batches = 5
compact_files = 8

[[tables]]
name = "parquet"
topic = "{topic}"
path = "{folder}/parquet"
format = "parquet"
schema = "n BIGINT, key STRING"
max_offsets_per_batch = {batch}
compact_every_batches = 5
compact_files = 8

[[tables]]
name = "by_key"
topic = "{topic}"
path = "{folder}/by_key"
schema = "n BIGINT"
mode = "upsert"
key = "k"
max_offsets_per_batch = {batch}

[[tables]]
name = "iceberg"
topic = "{topic}"
path = "kept.iceberg"
format = "iceberg"
schema = "n BIGINT, key STRING"
max_offsets_per_batch = {batch}
compact_every_batches = 5
compact_files = 8

[[tables]]
name = "iceberg_by_key"
topic = "{topic}"
path = "kept.iceberg_by_key"
format = "iceberg"
schema = "n BIGINT"
mode = "upsert"
key = "k"
max_offsets_per_batch = {batch}
compact_every_batches = 5
compact_files = 8
"""

REFUSED: Final = (
    ('mode = "upsert"', 'mode = "append"', "belongs to mode 'upsert', not 'append'"),
    ('format = "parquet"', 'format = "delta"', 'written with format = "parquet", not with format = "delta"'),
    ('key = "k"', 'key = "kk"', 'written with key = "k", not with key = "kk"'),
    ('name = "delta"', 'name = "delta"\npartition_by = ["key"]', "written with partition_by = [], not with"),
    ("n BIGINT", "n INT", "Column 'n' of the table is BIGINT, but INT in the schema"),
)
"""What must not change in the life of a table, each with what the job says of it."""


@dataclass(slots=True)
class Sent:
    """What the producer was told: the state of a topic that each table must come to."""

    numbers: list[int] = field(default_factory=list)
    broken: int = 0
    tombstones: int = 0
    latest: dict[str, int | None] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)


class Load(threading.Thread):
    """Sends so many numbered records a second until it is stopped; `sent` is complete once it has ended."""

    def __init__(self, bootstrap: str, rate_per_s: int = RATE_PER_S) -> None:
        super().__init__()
        self._rate_per_s = rate_per_s
        self.sent = Sent()
        self._stop_asked = threading.Event()
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 20, "compression.type": "lz4"}
        )

    def run(self) -> None:
        number = 0
        began = time.monotonic()
        while not self._stop_asked.is_set():
            while number < (time.monotonic() - began) * self._rate_per_s:
                self._send(number)
                number += 1
            self._producer.poll(0.02)
        if unsent := self._producer.flush(FLUSH_TIMEOUT_S):
            self.sent.errors.append(f"{unsent} records were not acknowledged in time")

    def stop(self) -> Sent:
        self._stop_asked.set()
        self.join()
        return self.sent

    def _send(self, number: int) -> None:
        key = f"key-{number % KEYS}"
        value: bytes | None = json.dumps({"n": number, "key": key}).encode()
        if number % 2_000 == 500:
            value = with_much_beside(number, key)
        elif number % 100 == 50:
            value = with_a_doubled_key(number, key)
        if number % 100 == 99:
            value = HOSTILE[number // 100 % len(HOSTILE)]
            self.sent.broken += 1
        elif number % 7 == 3:
            value = None
            self.sent.tombstones += 1
            self.sent.latest[key] = None
        else:
            self.sent.numbers.append(number)
            self.sent.latest[key] = number
        self._producer.produce(TOPIC, key=key, value=value, on_delivery=self._report)

    def _report(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.sent.errors.append(error.str())


class Job:
    """`ottla table sync` as a process group of its own."""

    def __init__(self, config: Path, log: Path) -> None:
        with log.open("a") as errors:
            self._process = subprocess.Popen(
                [str(Path(sys.executable).parent / "ottla"), "table", "sync", "--json", str(config)],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )

    def await_batch(self) -> None:
        """Waits until it says that a batch is done."""
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            if not selector.select(FIRST_BATCH_TIMEOUT_S):
                raise TimeoutError("the job did no batch in time")
        if not self._process.stdout.readline():
            raise ChildProcessError(f"the job ended by itself with exit code {self._process.wait()}")

    def has_ended(self) -> bool:
        """Whether it ended by itself."""
        return self._process.poll() is not None

    def kill(self, *, with_jvm: bool) -> None:
        """kill -9 of Python, and of its JVM; without it the JVM notices by itself."""
        if with_jvm:
            with suppress(ProcessLookupError):  # It ended by itself, and somebody else says why.
                os.killpg(self._process.pid, signal.SIGKILL)
        else:
            self._process.kill()
        self._process.communicate()

    def finish(self) -> int:
        """Waits for its end; the exit code."""
        self._process.communicate()
        return self._process.returncode


def faults(tables: dict[str, DataFrame], sent: Sent) -> list[str]:
    """What is not as it was sent."""
    wrong = list(sent.errors)
    for name in ("delta", "parquet", "iceberg"):
        held = Counter(row.n for row in tables[name].select("n").collect())
        doubled = sum(1 for count in held.values() if count > 1)
        missing, foreign = len(set(sent.numbers) - held.keys()), len(held.keys() - set(sent.numbers))
        if doubled or missing or foreign:
            wrong.append(f"{name}: {missing} rows missing, {doubled} doubled, {foreign} that were never sent")
        places = tables[f"{name}_dead"].groupBy("partition", "offset").count()
        dead, doubled = places.count(), places.where("count > 1").count()
        if dead != sent.broken + sent.tombstones or doubled:
            wrong.append(f"{name}: {dead} dead letters of {sent.broken + sent.tombstones}, {doubled} doubled")
    for name in ("by_key", "iceberg_by_key"):
        by_key = {row.k: row.n for row in tables[name].select("k", "n").collect()}
        if by_key != {key: number for key, number in sent.latest.items() if number is not None}:
            wrong.append(f"{name}: {len(by_key)} rows, not what was sent last for each key")
        if (rows := tables[name].count()) != len(by_key):
            wrong.append(f"{name}: {rows - len(by_key)} keys doubled")
    return wrong


def tables_in(spark: SparkSession, folder: Path) -> dict[str, DataFrame]:
    kinds = {"delta": "delta", "parquet": "parquet", "by_key": "delta"}
    found = {name: spark.read.format(kind).load(str(folder / name)) for name, kind in kinds.items()}
    dead = {
        f"{name}_dead": spark.read.format(kind).load(str(folder / f"{name}_dead_letters"))
        for name, kind in kinds.items()
    }
    return found | dead | _iceberg_tables(spark, folder)


def _iceberg_tables(spark: SparkSession, folder: Path) -> dict[str, DataFrame]:
    """Spark 4.2 has no reader of Iceberg: PyIceberg reads, and Spark compares."""
    catalogue = open_catalogue({"warehouse": str(folder / "lake")})
    tables = {"iceberg": "iceberg", "iceberg_dead": "iceberg_dead_letters", "iceberg_by_key": "iceberg_by_key"}
    return {
        name: spark.createDataFrame(catalogue.load_table(f"kept.{table}").scan().to_arrow())
        for name, table in tables.items()
    }


def run(
    broker: BrokerProcess,
    folder: Path,
    kills: int,
    source: str,
    seed: int,
    *,
    minutes: float = math.inf,
    rate_per_s: int = RATE_PER_S,
) -> tuple[Sent, int]:
    """Kills the job so often, or for so long, lets it catch up; what was sent, and the exit code of the last run."""
    end = time.monotonic() + minutes * 60
    Confluent(broker.bootstrap).create_topic(TOPIC, partitions=PARTITIONS)
    entries = {"bootstrap": broker.bootstrap, "folder": folder, "source": source, "topic": TOPIC}
    config, log = folder / "job.toml", folder / "job.log"
    at_first = CONFIG.format(trigger="continuous", batch=3_000, jars=session.jars(), **entries)
    config.write_text(at_first)
    moments = random.Random(seed)
    load = Load(broker.bootstrap, rate_per_s)
    load.start()
    try:
        for number in range(1, kills + 1):
            began = time.monotonic()
            changes = kills >= LEAST_KILLS_WITH_CHANGES
            job = winner_of_two(config, log) if changes and number == kills * 3 // 4 else Job(config, log)
            try:
                job.await_batch()
                if changes and number == kills // 4:
                    require_refusal(config, log, ANOTHER_RUNS)
                if changes and number == kills // 2:
                    kept = folder / "checkpoints" / "delta" / "schema.json"
                    await_condition(kept.exists, "the table of Delta came to no batch in time")
                time.sleep(moments.uniform(0.0, 3.0))
            except ChildProcessError as error:
                raise ChildProcessError(f"{error}\n{log.read_text()[-3000:]}") from None
            finally:
                job.kill(with_jvm=number % 2 == 1)
            print(f"kill {number} of {kills} after {time.monotonic() - began:.1f} s", flush=True)
            if changes and number == kills // 2:
                for old, new, sentence in REFUSED:
                    config.write_text(at_first.replace(old, new, 1))
                    require_refusal(config, log, sentence)
                config.write_text(changed(at_first))
            if time.monotonic() > end:
                break
    finally:
        sent = load.stop()
    config.write_text(changed(CONFIG.format(trigger="availableNow", batch=1_000_000, jars=session.jars(), **entries)))
    return sent, Job(config, log).finish()


def changed(text: str) -> str:
    """The job with settings that may change while a table lives."""
    more = text.replace('schema = "n BIGINT, key STRING"', 'schema = "n BIGINT, key STRING, added BIGINT"')
    return more.replace("compact_files = 8", "compact_files = 4").replace("= 3000", "= 2000")


def require_refusal(config: Path, log: Path, sentence: str) -> None:
    """Start the job, which must end by itself and say why."""
    said = len(log.read_text())
    _check_refusal(Job(config, log).finish(), log.read_text()[said:], sentence)


def winner_of_two(config: Path, log: Path) -> Job:
    """Start the job twice at once. One must end by itself and say why; the other."""
    said = len(log.read_text())
    jobs = [Job(config, log), Job(config, log)]
    try:
        await_condition(lambda: any(job.has_ended() for job in jobs), "neither of two jobs was refused in time")
        jobs.sort(key=Job.has_ended)
        _check_refusal(jobs[1].finish(), log.read_text()[said:], ANOTHER_RUNS)
    except BaseException:
        for job in jobs:
            job.kill(with_jvm=True)
        raise
    return jobs[0]


def await_condition(holds: Callable[[], bool], otherwise: str) -> None:
    end = time.monotonic() + FIRST_BATCH_TIMEOUT_S
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError(otherwise)
        time.sleep(0.1)


def _check_refusal(code: int, said: str, sentence: str) -> None:
    if code != 1 or sentence not in said:
        raise ChildProcessError(f"the job was not refused (exit code {code})\n{said[-3000:]}")
    print(f"refused: {sentence}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--broker", choices=("ottla", "kafka"), default="ottla")
    parser.add_argument("--source", choices=("ottla", "kafka"), default="ottla")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--rate", type=int, default=RATE_PER_S, help="records a second; fewer on a busy machine")
    parser.add_argument("--minutes", type=float, default=math.inf, help="start no other run after so long")
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    arguments = parser.parse_args()
    if reason := session.missing():
        parser.exit(2, f"{reason}\n")
    print(f"seed {arguments.seed}")
    kind = OttlaBroker if arguments.broker == "ottla" else ApacheKafka
    with tempfile.TemporaryDirectory(prefix="table-kill-loop-") as temporary:
        folder = Path(temporary)
        with kind(folder / "broker") as broker:
            sent, code = run(
                broker,
                folder,
                arguments.kills,
                arguments.source,
                arguments.seed,
                minutes=arguments.minutes,
                rate_per_s=arguments.rate,
            )
        if code != 0:
            sys.exit(f"the last run ended with exit code {code}\n{(folder / 'job.log').read_text()[-3000:]}")
        wrong = faults(tables_in(session.start(), folder), sent)
    for line in wrong:
        print(line)
    total = len(sent.numbers) + sent.broken + sent.tombstones
    print(f"{total:,} records: {'FAILED' if wrong else 'every row once, in each table'}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
