"""Jobs whose settings change between two runs: the table stays readable, with every row once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from compat_tests.brokers.ottla_broker import OttlaBroker
from compat_tests.clients.confluent import Confluent
from compat_tests.spark.tables.jobs import Tables, send
from ottla.pipeline.tables.errors import CheckpointError
from ottla.pipeline.tables.local_files import lock
from ottla.pipeline.values.succession import SchemaChangeError

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_a_parquet_table_whose_settings_change(
    spark: SparkSession, broker: OttlaBroker, client: Confluent, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    tables, topic = Tables(spark, broker.bootstrap, tmp_path, "ottla"), new_topic()
    table = {"topic": topic, "format": "parquet", "schema": "id INT"}
    send(client, topic, [{"id": 1, "name": "one"}])
    tables.sync(table)
    send(client, topic, [{"id": 2, "name": "two"}])

    for schema, sentence in (
        ("id BIGINT", "Column 'id' of the table is INT, but BIGINT in the schema"),
        ("name STRING", "Column 'id' of the table is missing in the schema"),
        ("id INT, `a b` INT", "Column 'a b' of the schema cannot be one"),
        ("id INT, _offset BIGINT", "Column '_offset' .* that the job writes itself"),
    ):
        with pytest.raises(SchemaChangeError, match=sentence):
            tables.sync(table | {"schema": schema})
    for changed in ({"format": "delta"}, {"partition_by": ["id"]}, {"key": "k"}):
        with pytest.raises(CheckpointError, match=f"was written with .*{next(iter(changed))}"):
            tables.sync(table | changed)
    with (
        lock(tmp_path / "checkpoints" / topic, CheckpointError("Nobody else has it.")),
        pytest.raises(CheckpointError, match="Another job that runs now has the checkpoint"),
    ):
        tables.sync(table)

    tables.sync(table | {"schema": "id INT, name STRING"})
    with pytest.raises(SchemaChangeError, match="Column 'name' of the table is missing"):
        tables.sync(table)
    assert sorted((row.id, row.name) for row in tables.table(topic, "parquet").collect()) == [(1, None), (2, "two")]


def test_a_delta_table_widens_where_its_owner_has_switched_that_on(
    spark: SparkSession, broker: OttlaBroker, client: Confluent, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    tables, topic = Tables(spark, broker.bootstrap, tmp_path, "ottla"), new_topic()
    table = {"topic": topic, "schema": "id INT"}
    send(client, topic, [{"id": 1}])
    tables.sync(table)
    send(client, topic, [{"id": 1 << 40}])
    with pytest.raises(SchemaChangeError, match=r"delta\.enableTypeWidening to true"):
        tables.sync(table | {"schema": "id BIGINT"})
    spark.sql(f"ALTER TABLE delta.`{tables.path(topic)}` SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')")
    tables.sync(table | {"schema": "id BIGINT"})
    assert sorted(row.id for row in tables.table(topic).collect()) == [1, 1 << 40]
    with pytest.raises(SchemaChangeError, match="Column 'id' of the table is BIGINT, but INT"):
        tables.sync(table)


def test_a_job_changes_its_source(
    spark: SparkSession, broker: OttlaBroker, client: Confluent, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    """Each goes on where the other was, but for the first batch of the source without a jar."""
    ours, connector = (Tables(spark, broker.bootstrap, tmp_path, source) for source in ("ottla", "kafka"))
    topic = new_topic(partitions=2)
    table = {"topic": topic, "format": "parquet", "schema": "id INT"}
    send(client, topic, [{"id": 0}])
    ours.sync(table)
    send(client, topic, [{"id": 1}])
    with pytest.raises(CheckpointError, match=r"has the first batch of .* only, .* then change source"):
        connector.sync(table)
    ours.sync(table)
    for number, tables in enumerate((connector, ours, connector), start=2):
        send(client, topic, [{"id": number}])
        (report,) = tables.sync(table)
        assert report["rows"] == 1
    assert sorted(row.id for row in ours.table(topic, "parquet").collect()) == [0, 1, 2, 3, 4]
