"""A day of a shop: 300,000 orders in six shifts, all that goes wrong in them, and a count of every order.

    python -m compat_tests.spark.endurance.orders_day [--orders 300000] [--seed 1]

Orders come with skewed keys; some are late, sent twice, cancelled (no value), hostile, or in transactions that are
aborted. `ottla table sync` keeps four tables of them by turns: Delta and Parquet (by day), which take every record,
Iceberg by key, and a topic of returns. In the course of the day

1. the tables begin, by a schema that is inferred;
2. hostile, late and doubled orders come; the job is killed between a commit of Delta and Spark's checkpoint;
3. the schema gains a column, transactions are aborted, and the job is started twice at once;
4. a column is missing in some orders, another changes its type; the job is killed twice at any moment;
5. partitions are added, a structure appears; the topic of returns is deleted and made again;
6. records are removed that the job has not read (the log start passes its checkpoint), which it refuses first.

At the end each row of each table is compared with what was sent, by partition and offset; and so are the files of the
broker, which `format("ottla-segments")` reads once it has been killed. The exit code is 0 only if all of it is equal.
It takes some 15 minutes of CPU.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError, Message, Producer, TopicPartition
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from compat_tests.brokers.ottla_broker import OttlaBroker
from compat_tests.clients.confluent import Confluent
from compat_tests.spark import session
from compat_tests.spark.endurance import kill_loop
from compat_tests.spark.endurance.kill_loop import Job, require_refusal, winner_of_two
from compat_tests.spark.hostile import HOSTILE
from ottla.pipeline.segments import SegmentsDataSource
from ottla.pipeline.tables.iceberg.catalogue import open_catalogue

SHIFTS: Final = 6
CUSTOMERS: Final = 5_000
ORDERS_TOPIC: Final = "orders"
RETURNS_TOPIC: Final = "returns"
DAY_MS: Final = 86_400_000
DELETED_AGAIN: Final = "was deleted and created again since the checkpoint"
REMOVED: Final = "were removed by retention before they were read"

TABLES: Final = """
[[tables]]
name = "all"
topic = "orders"
path = "{folder}/all"
max_offsets_per_batch = {batch}
on_data_loss = "{on_data_loss}"

[[tables]]
name = "days"
topic = "orders"
path = "{folder}/days"
format = "parquet"
partition_by = ["_date"]
max_offsets_per_batch = {batch}
on_data_loss = "{on_data_loss}"

[[tables]]
name = "latest"
topic = "orders"
path = "shop.latest"
format = "iceberg"
mode = "upsert"
key = "k"
max_offsets_per_batch = {batch}
on_data_loss = "{on_data_loss}"

[[tables]]
name = "{returns}"
topic = "returns"
path = "{folder}/{returns}"
schema = "n BIGINT"
"""


class Row(NamedTuple):
    """What a table must have of an order; `n` is None if it must be a dead letter."""

    key: str
    n: int | None
    total: float | None
    coupon: str | None
    city: str | None
    day: str


@dataclass(slots=True)
class Sent:
    """A record, and where it is since it was acknowledged."""

    row: Row
    is_cancelled: bool
    place: tuple[int, int] = (-1, -1)


class Model:
    """What was acknowledged and not aborted, in the order of sending, and what became of it."""

    def __init__(self) -> None:
        self.sent: list[Sent] = []
        self.lost: set[tuple[int, int]] = set()
        self.returns: list[set[int]] = [set()]
        self.counts: dict[str, int] = {}
        self.errors: list[str] = []

    def rows(self) -> dict[tuple[int, int], Row]:
        """What a table of all records has, by partition and offset."""
        return {each.place: each.row for each in self.sent if each.place not in self.lost}

    def latest(self) -> dict[str, int]:
        """The last order of each customer who has not cancelled it."""
        found: dict[str, int] = {}
        for each in self.sent:
            if each.place in self.lost:
                continue
            if each.is_cancelled:
                found.pop(each.row.key, None)
            elif each.row.n is not None:
                found[each.row.key] = each.row.n
        return found

    def end_of(self, partition: int) -> int:
        return max(each.place[1] for each in self.sent if each.place[0] == partition) + 1

    def count(self, what: str, more: int = 1) -> None:
        self.counts[what] = self.counts.get(what, 0) + more


class Shop:
    """Sends what a shift of the day brings."""

    def __init__(self, bootstrap: str, model: Model, seed: int) -> None:
        self._bootstrap = bootstrap
        self._model = model
        self._chance = random.Random(seed)
        self._number = 0
        self._now_ms = time.time_ns() // 1_000_000

    def send(self, shift: int, count: int) -> None:
        """One shift's orders: a quarter of them in transactions from the third shift on."""
        orders = list(self._orders(shift, count))
        rest = orders if shift < 3 else orders[count // 4 :]
        if shift >= 3:
            self._send_in_transactions(orders[: count // 4], shift)
        producer = Producer({"bootstrap.servers": self._bootstrap, "enable.idempotence": True, "linger.ms": 20})
        for value, row, time_ms in rest:
            self._model.sent.append(self._produce(producer, value, row, time_ms))
        self._flushed(producer)

    def send_returns(self, numbers: range) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap, "linger.ms": 20})
        for number in numbers:
            producer.produce(RETURNS_TOPIC, json.dumps({"n": number}))
            self._model.returns[-1].add(number)
            producer.poll(0)
        self._flushed(producer)

    def _send_in_transactions(self, orders: list[tuple[bytes | None, Row, int]], shift: int) -> None:
        settings = {"bootstrap.servers": self._bootstrap, "transactional.id": f"shift-{shift}", "linger.ms": 20}
        producer = Producer(settings)
        producer.init_transactions(60)
        for first in range(0, len(orders), 1000):
            producer.begin_transaction()
            sent = [self._produce(producer, *each) for each in orders[first : first + 1000]]
            producer.flush(60)
            if first // 1000 % 3 == 0:
                producer.abort_transaction(60)
                self._model.count("aborted", len(sent))
            else:
                producer.commit_transaction(60)
                self._model.sent += sent

    def _produce(self, producer: Producer, value: bytes | None, row: Row, time_ms: int) -> Sent:
        sent = Sent(row, value is None)

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self._model.errors.append(error.str())
            else:
                sent.place = (message.partition() or 0, message.offset() or 0)

        while True:
            try:
                producer.produce(ORDERS_TOPIC, value, row.key, timestamp=time_ms, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
        return sent

    def _flushed(self, producer: Producer) -> None:
        if left := producer.flush(120):
            self._model.errors.append(f"{left} records were not acknowledged")

    def _orders(self, shift: int, count: int) -> Iterator[tuple[bytes | None, Row, int]]:
        """(value, what it must become, its time): one order after the other, some of them twice."""
        chance = self._chance
        for _ in range(count):
            number, self._number = self._number, self._number + 1
            key = f"customer-{int(chance.paretovariate(0.9)) % CUSTOMERS}"
            is_late = shift > 1 and chance.random() < 0.02
            time_ms = self._now_ms + number - (chance.randrange(4 * DAY_MS) if is_late else 0)
            day = datetime.fromtimestamp(time_ms / 1000, UTC).date().isoformat()
            dead = Row(key, None, None, None, None, day)
            kind = chance.random()
            if shift > 1 and kind < 0.01:
                self._model.count("hostile")
                yield chance.choice(HOSTILE), dead, time_ms
                continue
            if shift > 1 and kind < 0.02:
                self._model.count("cancelled")
                yield None, dead, time_ms
                continue
            value, row = self._order(shift, number, key, day)
            if is_late:
                self._model.count("late")
            yield value, row, time_ms
            if shift > 1 and kind > 0.98:
                self._model.count("doubled")
                yield value, row, time_ms

    def _order(self, shift: int, number: int, key: str, day: str) -> tuple[bytes, Row]:
        chance = self._chance
        total = chance.randrange(1, 100_000) / 100 + 0.001
        document: dict[str, Any] = {"n": number, "key": key, "total": total}
        row = Row(key, number, total, None, None, day)
        if shift >= 3 and chance.random() < 0.5:
            coupon: Any = f"c{number % 7}" if shift == 3 or chance.random() < 0.5 else number % 7
            document["coupon"] = coupon
            row = row._replace(coupon=str(coupon))
        if shift >= 4 and (kind := chance.random()) < 0.2:
            if kind < 0.1:
                del document["total"]
                row = row._replace(total=None)
            else:
                self._model.count("of another type")
                document["total"] = f"{total} CZK"
                row = Row(key, None, None, None, None, day)
        if shift >= 5:
            document["address"] = {"city": f"city-{number % 11}"}
            row = row._replace(city=None if row.n is None else f"city-{number % 11}")
        return json.dumps(document).encode(), row


class Day:
    """The job, and what is done to it."""

    def __init__(self, broker: OttlaBroker, folder: Path, batch: int) -> None:
        self._broker = broker
        self.folder = folder
        self._batch = batch
        self.log = folder / "job.log"
        self.returns = "returns"

    def config(self, on_data_loss: str = "fail") -> Path:
        head = kill_loop.CONFIG.partition("[[tables]]")[0]
        names = {"folder": self.folder, "batch": self._batch, "on_data_loss": on_data_loss, "returns": self.returns}
        path = self.folder / "job.toml"
        path.write_text(
            head.format(
                bootstrap=self._broker.bootstrap,
                folder=self.folder,
                trigger="availableNow",
                source="ottla",
                jars=session.jars(),
            )
            + TABLES.format(**names)
        )
        return path

    def sync(self, on_data_loss: str = "fail") -> None:
        """Bring all tables up to date."""
        self._require_end(Job(self.config(on_data_loss), self.log))

    def sync_twice_at_once(self) -> None:
        self._require_end(winner_of_two(self.config(), self.log))

    def refused(self, sentence: str) -> None:
        require_refusal(self.config(), self.log, sentence)

    def kill_after_commit(self, *, with_jvm: bool) -> bool:
        """End the job as soon as Delta has a new commit; whether Spark's checkpoint has not got it."""
        versions = self.folder / "all" / "_delta_log"
        before = len(list(versions.glob("*.json")))
        job = Job(self.config(), self.log)
        deadline = time.monotonic() + kill_loop.FIRST_BATCH_TIMEOUT_S
        while len(list(versions.glob("*.json"))) == before and not job.has_ended():
            if time.monotonic() > deadline:
                raise TimeoutError("no commit of Delta in time")
            time.sleep(0.002)
        job.kill(with_jvm=with_jvm)
        done = {int(path.name) for path in (self.folder / "checkpoints/all/spark/commits").glob("[0-9]*")}
        return bool(_written(versions) - done)

    def kill_at(self, seconds: float, *, with_jvm: bool) -> None:
        job = Job(self.config(), self.log)
        try:
            job.await_batch()
            time.sleep(seconds)
        finally:
            job.kill(with_jvm=with_jvm)

    def _require_end(self, job: Job) -> None:
        if (code := job.finish()) != 0:
            raise ChildProcessError(f"the job ended with exit code {code}\n{self.log.read_text()[-3000:]}")


def _written(versions: Path) -> set[int]:
    """The numbers of the batches that Delta's commits carry."""
    lines = [json.loads(line) for path in versions.glob("*.json") for line in path.read_text().splitlines()]
    return {line["txn"]["version"] for line in lines if "txn" in line}


def live(broker: OttlaBroker, folder: Path, orders: int, seed: int) -> tuple[Day, Model]:
    """The day; what it must have come to."""
    client = Confluent(broker.bootstrap)
    client.create_topic(ORDERS_TOPIC, partitions=4)
    client.create_topic(RETURNS_TOPIC)
    model = Model()
    shop, day = Shop(broker.bootstrap, model, seed), Day(broker, folder, max(1000, orders // 12))
    part = orders // SHIFTS
    chance = random.Random(seed)

    def shift(number: int) -> None:
        print(f"{time.strftime('%H:%M:%S')} shift {number}", flush=True)
        shop.send(number, part)

    shop.send_returns(range(1000))
    shift(1)
    day.sync()
    shift(2)
    hits = sum(day.kill_after_commit(with_jvm=turn % 2 == 0) for turn in range(2))
    print(f"{hits} of 2 kills between Delta's commit and the checkpoint", flush=True)
    day.sync()
    shift(3)
    day.sync_twice_at_once()
    shift(4)
    for turn in range(2):
        day.kill_at(chance.uniform(0, 5), with_jvm=turn % 2 == 0)
    day.sync()
    client.add_partitions(ORDERS_TOPIC, 6)
    client.delete_topic(RETURNS_TOPIC)
    while RETURNS_TOPIC in client.topics():
        time.sleep(0.1)
    client.create_topic(RETURNS_TOPIC)
    model.returns.append(set())
    shop.send_returns(range(5000, 5500))
    shift(5)
    day.refused(DELETED_AGAIN)
    day.returns = "returns_again"
    day.sync()
    read = model.end_of(0)
    shift(6)
    lose(client, model, read)
    day.refused(REMOVED)
    day.sync(on_data_loss="continue")
    return day, model


def lose(client: Confluent, model: Model, read: int) -> None:
    """Move the log start of partition 0 beyond what the job has read, as retention does."""
    start = (read + model.end_of(0)) // 2
    for future in client._admin.delete_records([TopicPartition(ORDERS_TOPIC, 0, start)]).values():
        future.result(60)
    model.lost = {each.place for each in model.sent if each.place[0] == 0 and read <= each.place[1] < start}
    model.count("removed before they were read", len(model.lost))


def faults(spark: SparkSession, day: Day, model: Model) -> list[str]:
    """What the tables have that was not sent, and what was sent that they have not."""
    wrong, folder, rows = list(model.errors), day.folder, model.rows()
    good = {place: row for place, row in rows.items() if row.n is not None}
    for name, kind in (("all", "delta"), ("days", "parquet")):
        table = spark.read.option("mergeSchema", "true").format(kind).load(str(folder / name))
        wrong += _compared(name, _held(table, by_day=name == "days"), good, by_day=name == "days")
        dead = spark.read.format(kind).load(f"{folder / name}_dead_letters").select("partition", "offset")
        wrong += _places(f"{name}, dead letters", dead, rows.keys() - good.keys())
    latest = open_catalogue({"warehouse": str(folder / "lake")}).load_table("shop.latest").scan().to_arrow()
    keys, numbers = latest.column("k").to_pylist(), latest.column("n").to_pylist()
    if len(keys) != len(set(keys)) or dict(zip(keys, numbers, strict=True)) != model.latest():
        wrong.append(f"latest: {len(keys)} rows are not the last orders of {len(model.latest())} customers")
    for name, sent in zip(("returns", "returns_again"), model.returns, strict=True):
        found = [row.n for row in spark.read.format("delta").load(str(folder / name)).select("n").collect()]
        if sorted(found) != sorted(sent):
            wrong.append(f"{name}: {len(found)} rows of {len(sent)}")
    return wrong


def files(spark: SparkSession, broker: OttlaBroker, model: Model) -> list[str]:
    """The same for the files of the broker, which has been killed: what a consumer would get now."""
    spark.dataSource.register(SegmentsDataSource)
    stored = spark.read.format("ottla-segments").option("subscribe", ORDERS_TOPIC).option("columns", "partition,offset")
    starts = {0: max((offset for _, offset in model.lost), default=-1) + 1}
    expected = {place for place in model.rows() if place[1] >= starts.get(place[0], 0)}
    return _places("files", stored.load(str(broker.folder / "data")), expected)


def _held(table: DataFrame, *, by_day: bool) -> dict[tuple[int, int], list[tuple[object, ...]]]:
    day = F.date_format("_date", "yyyy-MM-dd") if by_day else F.lit("")
    columns = ["_partition", "_offset", "key", "n", "total", "coupon", "address.city"]
    found: dict[tuple[int, int], list[tuple[object, ...]]] = {}
    for row in zip(*table.select(*columns, day.alias("day")).toArrow().to_pydict().values(), strict=True):
        found.setdefault(row[:2], []).append(row[2:])
    return found


def _compared(
    name: str,
    held: dict[tuple[int, int], list[tuple[object, ...]]],
    expected: dict[tuple[int, int], Row],
    *,
    by_day: bool,
) -> list[str]:
    doubled = sum(len(rows) > 1 for rows in held.values())
    missing, foreign = len(expected.keys() - held.keys()), len(held.keys() - expected.keys())
    changed = [
        (place, held[place][0], row)
        for place, row in expected.items()
        if place in held and held[place][0] != (*row[:5], row.day if by_day else "")
    ]
    if not (doubled or missing or foreign or changed):
        return []
    return [f"{name}: {missing} missing, {doubled} doubled, {foreign} foreign, {len(changed)} changed {changed[:3]}"]


def _places(name: str, table: DataFrame, expected: set[tuple[int, int]]) -> list[str]:
    columns = table.toArrow().to_pydict().values()
    found = list(zip(*columns, strict=True))
    if sorted(found) == sorted(expected):
        return []
    missing, foreign = len(expected - set(found)), len(set(found) - expected)
    return [f"{name}: {missing} missing, {foreign} foreign, {len(found) - len(set(found))} doubled"]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--orders", type=int, default=300_000)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    arguments = parser.parse_args()
    if reason := session.missing():
        parser.exit(2, f"{reason}\n")
    print(f"seed {arguments.seed}")
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="orders-day-") as temporary:
        folder = Path(temporary)
        with OttlaBroker(folder / "broker") as broker:
            day, model = live(broker, folder, arguments.orders, arguments.seed)
            broker.kill()
            spark = session.start()
            wrong = faults(spark, day, model) + files(spark, broker, model)
    for line in wrong:
        print(line)
    told = ", ".join(f"{count:,} {what}" for what, count in sorted(model.counts.items()))
    minutes = (time.monotonic() - began) / 60
    print(f"{len(model.sent):,} records of {arguments.orders:,} orders in {minutes:.0f} minutes ({told}): ", end="")
    print("FAILED" if wrong else "each where it must be, once")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
