"""Topics kept in tables by `ottla table sync`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

from compat_tests.brokers.process import BrokerProcess
from compat_tests.clients.base import Record
from compat_tests.clients.confluent import Confluent
from compat_tests.spark.tables.jobs import Tables, send
from compat_tests.spark.topics import await_that


def test_json_into_a_delta_table_by_an_inferred_schema_that_evolves(
    tables: Tables, reference: Confluent, topic: str
) -> None:
    send(reference, topic, [{"id": n, "name": f"n{n}", "at": {"x": 1.5}} for n in range(10)])
    assert [(report["rows"], report["dead"], report["lag"]) for report in tables.sync({"topic": topic})] == [(10, 0, 0)]
    assert set(tables.table(topic).columns) == {"id", "name", "at", "_topic", "_partition", "_offset", "_timestamp"}

    send(reference, topic, [{"id": 10, "name": "ten", "at": {"x": 2.5, "y": 7}, "tags": ["new"]}])
    send(reference, topic, [{"id": "eleven", "name": "wrong"}, b"not json", b"[1]", b"\xff\xfe", None, {"id": 12}])
    assert [(report["rows"], report["dead"]) for report in tables.sync({"topic": topic})] == [(2, 5)]

    rows = {row.id: row for row in tables.table(topic).collect()}
    assert sorted(rows) == [*range(11), 12]
    assert (rows[10].at.y, rows[10].tags, rows[3].at.y, rows[3].tags) == (7, ["new"], None, None)
    dead = tables.dead(topic).orderBy("offset").collect()
    assert [(row.offset, row.reason) for row in dead] == [
        (11, 'field id is "eleven", not bigint'),
        (12, "the value is not a JSON object"),
        (13, "the value is not a JSON object"),
        (14, "the value is not UTF-8"),
        (15, "the record has no value"),
    ]
    assert (dead[0].topic, dead[0].partition, dead[1].value) == (topic, 0, b"not json")
    assert tables.sync({"topic": topic}) == []


def test_a_batch_is_read_once_also_where_its_schema_is_inferred(
    tables: Tables, reference: Confluent, topic: str
) -> None:
    read = RowsRead()
    tables.spark.streams.addListener(read)
    try:
        for start in (0, 50):
            send(reference, topic, [{"id": n, f"since_{start}": n} for n in range(start, start + 50)])
            (report,) = tables.sync({"topic": topic, "format": "parquet"})
            assert report["rows"] == 50
        await_that(lambda: read.ended == 2)
    finally:
        tables.spark.streams.removeListener(read)
    assert read.rows == [50, 50]


class RowsRead(StreamingQueryListener):
    """How many rows each batch took out of its source, counted as often as they were read."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.ended = 0

    def onQueryStarted(self, event: object) -> None:  # noqa: N802 - Spark's name
        pass

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        if event.progress.numInputRows:
            self.rows.append(event.progress.numInputRows)

    def onQueryIdle(self, event: object) -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, event: object) -> None:  # noqa: N802
        self.ended += 1


@pytest.mark.quick
def test_json_into_parquet_by_a_given_schema_and_partitions(
    spark: SparkSession, broker: BrokerProcess, reference: Confluent, topic: str, tmp_path: Path
) -> None:
    tables = Tables(spark, broker.bootstrap, tmp_path, "ottla")
    table = {
        "topic": topic,
        "format": "parquet",
        "schema": "id BIGINT, carrier STRING",
        "partition_by": ["carrier"],
        "compact_files": 2,
        "metadata": False,
    }
    for start in (0, 10):
        flights = [{"id": n, "carrier": "UA" if n % 2 else "DL", "left": "out"} for n in range(start, start + 10)]
        send(reference, topic, [*flights, {"id": 1.5}])
        (report,) = tables.sync(table)
        assert (report["rows"], report["dead"]) == (10, 1)
    rows = tables.table(topic, "parquet").collect()
    assert sorted((row.id, row.carrier) for row in rows) == [(n, "UA" if n % 2 else "DL") for n in range(20)]
    assert tables.dead(topic, "parquet").count() == 2
    # Put together by compaction, with nothing left over; the dead letters as well.
    assert len(list((tmp_path / topic).rglob("carrier=UA/*.parquet"))) == 1
    assert len(list((tmp_path / f"{topic}_dead_letters").rglob("*.parquet"))) == 1


def test_upserts_by_key_with_tombstones(tables: Tables, reference: Confluent, topic: str) -> None:
    table = {"topic": topic, "mode": "upsert", "key": "customer"}
    send(reference, topic, [{"id": n % 5, "total": n} for n in range(50)], key="id")
    (report,) = tables.sync(table)
    assert report["rows"] == 50
    assert {row.customer: row.total for row in tables.table(topic).collect()} == {str(n): 45 + n for n in range(5)}
    producer = reference.producer()
    producer.send(
        topic,
        [
            Record(None, key=b"0"),
            Record(b'{"id": 1, "total": 100, "paid": true}', key=b"1"),
            Record(b'{"id": 2, "total": 200}', key=b"2"),
            Record(None, key=b"2"),
            Record(None, key=b"3"),
            Record(b'{"id": 3, "total": 300}', key=b"3"),
            Record(None, key=b"never seen"),
            Record(b'{"id": 9}'),
        ],
    )
    (report,) = tables.sync(table)
    assert (report["rows"], report["dead"]) == (7, 1)
    assert {row.customer: (row.total, row.paid) for row in tables.table(topic).collect()} == {
        "1": (100, True),
        "3": (300, None),
        "4": (49, None),
    }
    assert [row.reason for row in tables.dead(topic).collect()] == ["the record has no key to upsert by"]


def test_raw_records_and_several_topics_in_one_job(
    tables: Tables, reference: Confluent, new_topic: Callable[..., str]
) -> None:
    first, second = new_topic(partitions=3), new_topic()
    producer = reference.producer()
    producer.send(first, [Record(b"%d" % n, key=b"k", headers=(("h", b"1"),), partition=n % 3) for n in range(30)])
    send(reference, second, [{"a": 1}, {"a": 2}])
    tables.sync({"topic": first, "decode": "raw", "format": "parquet"}, {"topic": second})
    raw = tables.table(first, "parquet").collect()
    assert sorted(int(row.value) for row in raw) == list(range(30))
    assert {(bytes(row.key), row.headers[0].key) for row in raw} == {(b"k", "h")}
    assert sorted(row.a for row in tables.table(second).collect()) == [1, 2]


def test_the_batches_of_a_backfill_are_bounded(tables: Tables, reference: Confluent, topic: str) -> None:
    send(reference, topic, [{"id": n} for n in range(100)])
    reports = tables.sync({"topic": topic, "max_offsets_per_batch": 40})
    assert [report["rows"] for report in reports] == [40, 40, 20]
    assert [report["lag"] for report in reports][-1] == 0
    assert sorted(row.id for row in tables.table(topic).collect()) == list(range(100))


def test_uncommitted_records_stay_out(tables: Tables, reference: Confluent, topic: str) -> None:
    writer = reference.transactional(f"table-{topic}")
    writer.begin()
    writer.send(topic, [Record(b'{"id": 1}')])
    writer.abort()
    writer.begin()
    writer.send(topic, [Record(b'{"id": 2}')])
    writer.commit()
    tables.sync({"topic": topic})
    assert [row.id for row in tables.table(topic).collect()] == [2]


def test_progress_and_metrics(tables: Tables, reference: Confluent, topic: str) -> None:
    send(reference, topic, [{"id": 1}, b"wrong"])
    metrics = tables.folder / "metrics.prom"
    tables.sync({"topic": topic, "name": "orders"}, as_json=False, metrics=str(metrics))
    assert tables.lines[0].startswith("orders: batch 0, 1 rows, 1 dead letters, lag 0, ")
    assert 'ottla_table_rows_total{table="orders"} 1' in metrics.read_text()


@pytest.mark.parametrize(
    "how", [{}, {"format": "parquet"}, {"mode": "upsert", "key": "k"}], ids=["delta", "parquet", "upsert"]
)
def test_a_batch_that_spark_repeats_changes_nothing(
    tables: Tables, reference: Confluent, topic: str, how: dict[str, str]
) -> None:
    table = {"topic": topic, "partition_by": ["_partition"], **how}
    kind = how.get("format", "delta")
    send(reference, topic, [{"id": n} for n in range(10)] + [b"wrong"], key="id")
    tables.sync(table)
    send(reference, topic, [{"id": n} for n in range(5, 20)] + [b"wrong"], key="id")
    tables.sync(table)
    before = sorted(tables.table(topic, kind).collect()), sorted(tables.dead(topic, kind).collect())
    assert len(before[0]) == (20 if "mode" in how else 25)

    # As if the job had been killed after the table was written and before Spark noted that.
    commits = Path(tables.folder / "checkpoints" / topic / "spark" / "commits")
    for leftover in commits.glob("*1*"):
        leftover.unlink()
    (report,) = tables.sync(table)
    assert (report["batch"], report["rows"]) == (1, 15)
    assert (sorted(tables.table(topic, kind).collect()), sorted(tables.dead(topic, kind).collect())) == before


def test_fields_that_cannot_be_columns(tables: Tables, reference: Confluent, topic: str) -> None:
    good = {"id": 1, "at": {"x": 1}, "parts": [{"a": 1}]}
    bad = [
        {"id": 2, "_offset": 5},
        {"ID": 3},
        {"id": 4, "with space": 1},
        {"id": 5, "at": {"x": 1, "X": 2}},
        {"id": 6, "parts": [{"a;b": 1}]},
    ]
    send(reference, topic, [good, *bad, {"id": 7, "at": {"x": 2}}, b'{"id": 8} {"id": 9}'])
    (report,) = tables.sync({"topic": topic})
    assert (report["rows"], report["dead"]) == (2, 6)
    assert sorted(row.id for row in tables.table(topic).collect()) == [1, 7]
    reasons = [row.reason for row in tables.dead(topic).orderBy("offset").collect()]
    assert reasons == [
        "field '_offset' cannot become a column",
        "field 'ID' cannot become a column",
        "field 'with space' cannot become a column",
        "field 'X' cannot become a column",
        "field 'a;b' cannot become a column",
        "the value is not JSON: Extra data: line 1 column 11 (char 10)",
    ]
