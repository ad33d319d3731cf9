"""Topics kept in Iceberg tables, of a folder's catalogue and of a REST catalogue, read back by PyIceberg."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from compat_tests import iceberg
from compat_tests.brokers.process import BrokerProcess
from compat_tests.clients.base import Record
from compat_tests.clients.confluent import Confluent
from compat_tests.spark.tables.jobs import Tables, send
from ottla.pipeline.tables import config
from ottla.pipeline.tables.iceberg.catalogue import open_catalogue
from ottla.pipeline.tables.sinks import open_sink
from ottla.pipeline.values.succession import SchemaChangeError


class IcebergTables(Tables):
    """Jobs whose tables stand in one catalogue."""

    def __init__(self, spark: SparkSession, bootstrap: str, folder: Path, catalogue: Mapping[str, str]) -> None:
        super().__init__(spark, bootstrap, folder, "ottla")
        self._catalogue = catalogue

    def keep(self, table: dict[str, object]) -> tuple[int, int]:
        """Run a job; how many rows and dead letters it says there were."""
        kept = {"format": "iceberg", "path": "shop.orders"}
        reports = self.sync(kept | table, iceberg=self._catalogue)
        return sum(report["rows"] for report in reports), sum(report["dead"] for report in reports)

    def read(self, name: str = "shop.orders") -> pa.Table:
        catalogue = open_catalogue(self._catalogue)
        try:
            return catalogue.load_table(name).scan().to_arrow()
        finally:
            catalogue.close()


@pytest.fixture(scope="module")
def rest_catalogues() -> Iterator[iceberg.RestCatalogues]:
    if reason := iceberg.missing():
        pytest.skip(reason)
    with iceberg.rest_catalogues() as catalogues:
        yield catalogues


@pytest.fixture(params=["folder", "rest"])
def tables(spark: SparkSession, broker: BrokerProcess, tmp_path: Path, request: pytest.FixtureRequest) -> IcebergTables:
    lake = tmp_path / "lake"
    settings: Mapping[str, str] = {"warehouse": str(lake)}
    if request.param == "rest":
        settings = request.getfixturevalue("rest_catalogues").settings(lake)
    return IcebergTables(spark, broker.bootstrap, tmp_path, settings)


def test_json_into_a_table_that_evolves(tables: IcebergTables, reference: Confluent, topic: str) -> None:
    table = {"topic": topic, "partition_by": ["_date"], "compact_files": 2}
    send(reference, topic, [{"id": n, "at": {"x": 1.5}, "tags": ["a", "b"]} for n in range(10)])
    assert tables.keep(table) == (10, 0)
    send(reference, topic, [{"id": 10, "at": {"x": 2.5, "y": 7}, "coupon": "SPRING"}, b"not json", {"id": "eleven"}])
    assert tables.keep(table) == (1, 2)
    assert tables.keep(table) == (0, 0)

    rows = {row["id"]: row for row in tables.read().to_pylist()}
    assert sorted(rows) == list(range(11))
    assert (rows[10]["at"], rows[10]["coupon"], rows[10]["tags"]) == ({"x": 2.5, "y": 7}, "SPRING", None)
    assert (rows[3]["at"], rows[3]["coupon"], rows[3]["tags"]) == ({"x": 1.5, "y": None}, None, ["a", "b"])
    assert {(row["_topic"], row["_date"]) for row in rows.values()} == {(topic, rows[0]["_timestamp"].date())}
    dead = tables.read("shop.orders_dead_letters").sort_by("offset").to_pylist()
    assert [row["reason"] for row in dead] == ["the value is not a JSON object", 'field id is "eleven", not bigint']


def test_upserts_by_key_with_tombstones(tables: IcebergTables, reference: Confluent, topic: str) -> None:
    table = {"topic": topic, "mode": "upsert", "key": "customer", "compact_files": 2}
    send(reference, topic, [{"id": n % 5, "total": n} for n in range(50)], key="id")
    assert tables.keep(table) == (50, 0)
    assert {row["customer"]: row["total"] for row in tables.read().to_pylist()} == {str(n): 45 + n for n in range(5)}
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
    assert tables.keep(table) == (7, 1)
    rows = {row["customer"]: (row["total"], row["paid"]) for row in tables.read().to_pylist()}
    assert rows == {"1": (100, True), "3": (300, None), "4": (49, None)}


def test_columns_become_wider_as_iceberg_allows(tables: IcebergTables, reference: Confluent, topic: str) -> None:
    send(reference, topic, [{"id": 1, "price": 1.5}])
    tables.keep({"topic": topic, "schema": "id INT, price DECIMAL(5,2)"})
    send(reference, topic, [{"id": 1 << 40, "price": 12345.5}])
    with pytest.raises(SchemaChangeError, match="Column 'price' of the table is"):
        tables.keep({"topic": topic, "schema": "id BIGINT, price DECIMAL(9,4)"})
    assert tables.keep({"topic": topic, "schema": "id BIGINT, price DECIMAL(9,2)"}) == (1, 0)
    assert sorted((row["id"], str(row["price"])) for row in tables.read().to_pylist()) == [
        (1, "1.50"),
        (1 << 40, "12345.50"),
    ]


def test_a_batch_that_is_repeated(spark: SparkSession, tmp_path: Path) -> None:
    """As Spark repeats it when the job died before Spark noted that it was done."""
    job = config.parse(
        {
            "bootstrap": "127.0.0.1:1",
            "iceberg": {"warehouse": str(tmp_path / "lake")},
            "tables": [{"topic": "t", "path": "shop.orders", "format": "iceberg"}],
        }
    )
    sink = open_sink(spark, job, job.tables[0])
    assert not sink.has_rows()
    for _ in range(2):
        sink.append(spark.range(10).selectExpr("id AS k", "id * 2 AS n", "false AS gone"), "app", 0)
    changes = spark.range(5, 12).selectExpr("id AS k", "-id AS n", "id = 7 OR id = 11 AS __deleted", "true AS gone")
    for _ in range(2):
        sink.upsert(changes, "k", "__deleted", "app", 1)
    assert sink.has_rows()
    catalogue = open_catalogue(job.iceberg)
    kept = {row["k"]: row["n"] for row in catalogue.load_table("shop.orders").scan().to_arrow().to_pylist()}
    assert kept == {**{k: 2 * k for k in range(5)}, 5: -5, 6: -6, 8: -8, 9: -9, 10: -10}
    assert len(catalogue.load_table("shop.orders").snapshots()) == 2
    catalogue.close()
