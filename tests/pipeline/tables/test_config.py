"""The TOML file of a job: what it means, and what is said of its mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.client.schema_registry import RegistryLogin
from ottla.pipeline.tables import config
from ottla.pipeline.tables.errors import ConfigError

MINIMAL = """
bootstrap = "127.0.0.1:9092"

[[tables]]
topic = "orders"
path = "lake/orders/"
"""


def parsed(tmp_path: Path, text: str) -> config.JobConfig:
    path = tmp_path / "job.toml"
    path.write_text(text)
    return config.load(path)


def test_a_topic_and_a_path_are_enough(tmp_path: Path) -> None:
    job = parsed(tmp_path, MINIMAL)
    (table,) = job.tables
    assert (job.trigger, job.source) == ("availableNow", "ottla")
    assert (table.name, table.format, table.mode, table.decode, table.start) == (
        "orders",
        "delta",
        "append",
        "json",
        "earliest",
    )
    assert table.checkpoint == "checkpoints/orders"
    assert table.dead_letters == "lake/orders_dead_letters"
    assert table.evolves


def test_everything_can_be_said(tmp_path: Path) -> None:
    job = parsed(
        tmp_path,
        """
        bootstrap = "a:1,b:2"
        checkpoint = "s3a://bucket/checkpoints"
        trigger = "continuous"
        interval = "1 minute"
        source = "kafka"
        metrics = "job.prom"

        [spark]
        "spark.master" = "local[2]"
        "spark.ui.enabled" = false

        [kafka]
        isolation.level = "read_uncommitted"

        [[tables]]
        name = "customers"
        topic = "customers.v1"
        path = "s3a://bucket/customers"
        mode = "upsert"
        key = "id"
        key_type = "long"
        decode = "avro"
        registry = "http://registry:8081"
        evolve = false
        partition_by = ["_date"]
        dead_letters = "s3a://bucket/bad"
        on_data_loss = "continue"
        max_offsets_per_batch = 5
        compact_every_batches = 0

        [tables.options]
        minPartitions = 8
        """,
    )
    (table,) = job.tables
    assert job.spark == {"spark.master": "local[2]", "spark.ui.enabled": "false"}
    assert job.kafka == {"isolation.level": "read_uncommitted"}
    assert table.checkpoint == "s3a://bucket/checkpoints/customers"
    assert (table.partition_by, table.options) == (("_date",), {"minPartitions": "8"})
    assert not table.evolves


def test_a_given_schema_does_not_evolve_unless_asked(tmp_path: Path) -> None:
    assert not parsed(tmp_path, MINIMAL + 'schema = "id BIGINT"').tables[0].evolves
    assert parsed(tmp_path, MINIMAL + 'schema = "id BIGINT"\nevolve = true').tables[0].evolves


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ('colour = "red"', "has 'colour', which is unknown: known are "),
        ('format = "iceberg"', "path and dead_letters of an Iceberg table are names in its catalogue"),
        (
            'name = "x"\n[[tables]]\ntopic = "b"\npath = "shop.b"\nformat = "iceberg"',
            "need a catalogue: write [iceberg]",
        ),
        ('format = "csv"', "format is 'csv', but must be one of parquet, delta, iceberg"),
        ('mode = "upsert"', 'mode upsert needs key = "…"'),
        ('mode = "upsert"\nkey = "id"\nformat = "parquet"', "mode upsert needs format delta or iceberg"),
        ('decode = "avro"', 'decode avro needs registry = "http://…", or the file'),
        ('decode = "raw"\nschema = "id INT"', "decode raw takes no schema"),
        ('decode = "raw"\nkey = "Key"', "key = 'Key' is the name of a column that the table has already"),
        ('key = "_offset"', "key = '_offset' is the name of a column that the table has already"),
        ('schema = "id INT"\nschema_file = "x"', "schema and schema_file exclude each other"),
        ('registry = "http://x"', "a registry goes with decode avro, protobuf, json-schema only"),
        ('decode = "avro"\nschema_file = "x"\nschema = "id INT"', "schema and schema_file exclude each other"),
        ("max_offsets_per_batch = 0", "max_offsets_per_batch is at least 1"),
        ('max_offsets_per_batch = "many"', "max_offsets_per_batch must be a whole number"),
        ("evolve = 1", "evolve must be true or false"),
        ('partition_by = "_date"', "partition_by is a list of column names"),
        ('metadata = false\npartition_by = ["_date"]', "partition_by names a column of the record's metadata"),
        ('topic = ""', "Cannot overwrite a value"),
        ('[[tables]]\ntopic = "b"\npath = "lake/orders"', "two tables have the path 'lake/orders'"),
        ('[[tables]]\ntopic = "orders"\npath = "c"', "two tables have the name 'orders'"),
        ('[[tables]]\ntopic = "b"', "entry 2 has no path: it must be given"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, line: str, complaint: str) -> None:
    with pytest.raises(ConfigError) as error:
        parsed(tmp_path, MINIMAL + line)
    assert complaint in str(error.value)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("bootstrap = ", "is not TOML"),
        ('bootstrap = "x:1"', "there is no [[tables]] entry"),
        ('[[tables]]\ntopic = "a"\npath = "b"', "the job has no bootstrap"),
        ('trigger = "once"' + MINIMAL, "trigger is 'once', but must be one of availableNow, continuous"),
        ('spark = "local"' + MINIMAL, "[spark] must hold lines"),
    ],
)
def test_mistakes_of_the_job(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(ConfigError) as error:
        parsed(tmp_path, text)
    assert complaint in str(error.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"job\.toml cannot be read: No such file"):
        config.load(tmp_path / "job.toml")


REGISTRY = """
bootstrap = "127.0.0.1:9092"

[registry]
url = "https://registry:8081"
basic.auth.user.info = "ada:lovelace"
"ssl.ca.location" = "ca.pem"

[[tables]]
topic = "orders"
path = "lake/orders"
decode = "protobuf"

[[tables]]
topic = "plain"
path = "lake/plain"
"""


def test_a_registry_for_all_tables_that_need_one(tmp_path: Path) -> None:
    job = parsed(tmp_path, REGISTRY)
    assert [table.registry for table in job.tables] == ["https://registry:8081", None]
    assert job.registry_login == RegistryLogin(user_info="ada:lovelace", ca_file="ca.pem")
    with pytest.raises(ConfigError, match=r"\[registry\] has 'user', which is unknown: known are url, basic"):
        parsed(tmp_path, REGISTRY.replace("basic.auth.user.info", "user"))


def test_an_iceberg_table_has_a_name_in_a_catalogue(tmp_path: Path) -> None:
    iceberg = (
        '[iceberg]\nwarehouse = "lake"\n[[tables]]\ntopic = "a"\npath = "shop.a"\nformat = "iceberg"\nmode = "upsert"'
    )
    job = parsed(tmp_path, f'bootstrap = "x:1"\n{iceberg}\nkey = "id"')
    assert (job.iceberg, job.tables[0].dead_letters) == ({"warehouse": "lake"}, "shop.a_dead_letters")
    with pytest.raises(ConfigError, match=r"such as 'shop\.orders': 'lake/a' is none"):
        parsed(tmp_path, f'bootstrap = "x:1"\n{iceberg}\nkey = "id"'.replace("shop.a", "lake/a"))
