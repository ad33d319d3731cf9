"""The TOML file that declares a job: from where, which topics into which tables, and how.

Unknown names are refused, so that a slip of the pen is not a silent default. Every error is a ConfigError whose
sentence names the file's entry.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, Final, TypeVar

from ottla.client.schema_registry import RegistryLogin
from ottla.pipeline.tables.errors import ConfigError

__all__ = ["JobConfig", "TableConfig", "load"]

T = TypeVar("T")

CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "trigger": ("availableNow", "continuous"),
    "source": ("ottla", "kafka"),
    "format": ("parquet", "delta", "iceberg"),
    "mode": ("append", "upsert"),
    "decode": ("raw", "json", "avro", "protobuf", "json-schema"),
    "start": ("earliest", "latest"),
    "on_data_loss": ("fail", "continue"),
    "key_type": ("string", "binary", "long", "int"),
}
_WITH_SCHEMA: Final = ("avro", "protobuf", "json-schema")
_REGISTRY_SETTINGS: Final = {
    "basic.auth.user.info": "user_info",
    "bearer.auth.token": "token",
    "ssl.ca.location": "ca_file",
    "ssl.certificate.location": "certificate_file",
    "ssl.key.location": "key_file",
}
METADATA_COLUMNS: Final = ("_topic", "_partition", "_offset", "_timestamp")
DATE_COLUMN: Final = "_date"
_ICEBERG_NAME: Final = re.compile(r"[^./\s]+(\.[^./\s]+)+")
RAW_COLUMNS: Final = ("key", "value", "headers")


@dataclass(frozen=True, slots=True)
class TableConfig:
    """One topic and its table. The `path` of an Iceberg table is its name in the catalogue, such as `shop.orders`.

    `key` names the column that the record's key goes into, as `key_type`; upserts go by it, and a record without a
    value deletes the row. `schema` is Spark DDL or, for Avro, Protobuf and JSON Schema, a schema file; without one JSON
    is inferred from the first batch and the others' are looked up in the `registry`. With `evolve` new fields become
    new columns; it is on unless a schema is given. `metadata` keeps each record's topic, partition, offset and
    timestamp in columns of their own.
    """

    topic: str
    path: str
    name: str = ""
    format: str = "delta"
    mode: str = "append"
    decode: str = "json"
    schema: str | None = None
    schema_file: str | None = None
    registry: str | None = None
    evolve: bool | None = None
    key: str | None = None
    key_type: str = "string"
    metadata: bool = True
    partition_by: tuple[str, ...] = ()
    dead_letters: str = ""
    start: str = "earliest"
    on_data_loss: str = "fail"
    max_offsets_per_batch: int = 1_000_000
    compact_every_batches: int = 100
    compact_files: int = 16
    checkpoint: str = ""
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def evolves(self) -> bool:
        given = self.schema is not None or self.schema_file is not None
        return (not given) if self.evolve is None else self.evolve


@dataclass(frozen=True, slots=True)
class JobConfig:
    """Everything that one file declares. `spark` holds Spark's settings, `kafka` the client's, as `kafka.` options,
    `iceberg` those of the catalogue, by PyIceberg's names, `registry` those of the schema registry, by Confluent's."""

    bootstrap: str
    tables: tuple[TableConfig, ...]
    checkpoint: str = "checkpoints"
    trigger: str = "availableNow"
    interval: str = "10 seconds"
    source: str = "ottla"
    metrics: str | None = None
    spark: Mapping[str, str] = field(default_factory=dict)
    kafka: Mapping[str, str] = field(default_factory=dict)
    iceberg: Mapping[str, str] = field(default_factory=dict)
    registry: Mapping[str, str] = field(default_factory=dict)

    @property
    def registry_login(self) -> RegistryLogin:
        return RegistryLogin(
            **{_REGISTRY_SETTINGS[name]: text for name, text in self.registry.items() if name != "url"}
        )


def load(path: str | Path) -> JobConfig:
    """Read and check a file. ConfigError says what is wrong with it."""
    try:
        text = Path(path).read_text()
    except OSError as error:
        raise ConfigError(f"The configuration {path} cannot be read: {error.strerror or error}.") from error
    try:
        return parse(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not TOML: {error}.") from error
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def parse(document: Mapping[str, Any]) -> JobConfig:
    """Check what a TOML document says."""
    entries = dict(document)
    raw_tables = entries.pop("tables", None)
    if not isinstance(raw_tables, list) or not raw_tables:
        raise ConfigError("there is no [[tables]] entry: declare at least one with a topic and a path.")
    for group in ("spark", "kafka", "iceberg", "registry"):
        entries[group] = _texts(entries.get(group, {}), f"[{group}]")
    checkpoint = str(entries.get("checkpoint", "checkpoints")).rstrip("/")
    if unknown := entries["registry"].keys() - _REGISTRY_SETTINGS.keys() - {"url"}:
        known = ", ".join(["url", *_REGISTRY_SETTINGS])
        raise ConfigError(f"[registry] has {min(unknown)!r}, which is unknown: known are {known}.")
    url = entries["registry"].get("url")
    tables = tuple(_table(raw, number, checkpoint, url) for number, raw in enumerate(raw_tables, start=1))
    job = _build(JobConfig, entries | {"tables": tables}, "the job")
    _refuse_doubles(tables)
    if in_catalogue := [table for table in tables if table.format == "iceberg"]:
        _check_iceberg(in_catalogue, job.iceberg)
    return job


def _table(raw: object, number: int, checkpoint: str, registry: str | None) -> TableConfig:
    where = f"[[tables]] entry {number}"
    if not isinstance(raw, dict):
        raise ConfigError(f"{where} is not a table of TOML.")
    entries = dict(raw)
    entries["options"] = _texts(entries.get("options", {}), f"{where} options")
    columns = entries.get("partition_by", [])
    if not isinstance(columns, list) or not all(isinstance(column, str) for column in columns):
        raise ConfigError(f'{where}: partition_by is a list of column names, such as ["_date"].')
    entries["partition_by"] = tuple(columns)
    entries.setdefault("name", entries.get("topic", ""))
    entries.setdefault("dead_letters", str(entries.get("path", "")).rstrip("/") + "_dead_letters")
    if registry and entries.get("decode") in _WITH_SCHEMA and "schema_file" not in entries:
        entries.setdefault("registry", registry)
    entries.setdefault("checkpoint", f"{checkpoint}/{entries['name']}")
    table = _build(TableConfig, entries, where)
    _check_table(table, where)
    return table


def _check_table(table: TableConfig, where: str) -> None:
    def refuse(what: str) -> None:
        raise ConfigError(f"{where} (topic {table.topic}): {what}.")

    if table.mode == "upsert" and table.format == "parquet":
        refuse("mode upsert needs format delta or iceberg: Parquet files cannot be changed row by row")
    if table.mode == "upsert" and table.key is None:
        refuse('mode upsert needs key = "…", the name of the column that the record\'s key goes into')
    _check_schema(table, refuse)
    if table.max_offsets_per_batch < 1 or table.compact_every_batches < 0 or table.compact_files < 2:
        refuse("max_offsets_per_batch is at least 1, compact_every_batches 0 (never) or more, compact_files 2 or more")
    taken = (*(METADATA_COLUMNS if table.metadata else ()), *(RAW_COLUMNS if table.decode == "raw" else ()))
    if table.key is not None and table.key.lower() in taken:
        refuse(f"key = {table.key!r} is the name of a column that the table has already: give the key's column another")
    if not table.metadata and (set(table.partition_by) & {*METADATA_COLUMNS, DATE_COLUMN}):
        refuse("partition_by names a column of the record's metadata, which metadata = false leaves out")


def _check_schema(table: TableConfig, refuse: Callable[[str], None]) -> None:
    if table.schema is not None and table.schema_file is not None:
        refuse("schema and schema_file exclude each other")
    if table.decode == "raw" and (table.schema or table.schema_file or table.registry):
        refuse("decode raw takes no schema and no registry")
    if table.decode in _WITH_SCHEMA:
        if not (table.schema_file or table.registry):
            refuse(f'decode {table.decode} needs registry = "http://…", or the file of a schema as schema_file')
        if table.schema is not None:
            refuse(f"schema is Spark DDL, which {table.decode} does not use: write schema_file")
    elif table.registry:
        refuse(f"a registry goes with decode {', '.join(_WITH_SCHEMA)} only")


def _check_iceberg(tables: list[TableConfig], settings: Mapping[str, str]) -> None:
    """A catalogue is named, or a folder to have one in, and the tables' names in it."""
    for path in [path for table in tables for path in (table.path, table.dead_letters)]:
        if not _ICEBERG_NAME.fullmatch(path):
            raise ConfigError(
                "path and dead_letters of an Iceberg table are names in its catalogue, such as 'shop.orders': "
                f"{path!r} is none."
            )
    warehouse = settings.get("warehouse", "")
    if not settings.keys() & {"type", "uri", "py-catalog-impl"} and (not warehouse or "://" in warehouse):
        raise ConfigError(
            'tables of format iceberg need a catalogue: write [iceberg] with warehouse = "lake", a folder of this '
            'machine, or with PyIceberg\'s settings, such as type = "rest" and uri = "https://…".'
        )


def _refuse_doubles(tables: tuple[TableConfig, ...]) -> None:
    for what, all_of in {
        "name": [table.name for table in tables],
        "checkpoint": [table.checkpoint for table in tables],
        "path": [path.rstrip("/") for table in tables for path in (table.path, table.dead_letters)],
    }.items():
        doubles = sorted({entry for entry in all_of if all_of.count(entry) > 1})
        if doubles:
            raise ConfigError(f"two tables have the {what} {doubles[0]!r}: give each its own.")


def _build(kind: type[T], entries: Mapping[str, Any], where: str) -> T:
    known = {part.name: part for part in fields(kind)}  # type: ignore[arg-type]
    for name, value in entries.items():
        if name not in known:
            raise ConfigError(f"{where} has {name!r}, which is unknown: known are {', '.join(sorted(known))}.")
        if name in CHOICES and value not in CHOICES[name]:
            raise ConfigError(f"{where}: {name} is {value!r}, but must be one of {', '.join(CHOICES[name])}.")
        _check_kind(str(known[name].type), name, value, where)
    for name, part in known.items():
        if part.default is MISSING and part.default_factory is MISSING and not entries.get(name):
            raise ConfigError(f"{where} has no {name}: it must be given.")
    return kind(**entries)


def _check_kind(declared: str, name: str, value: object, where: str) -> None:
    kinds = {"str": (str, "text in quotes"), "bool": (bool, "true or false"), "int": (int, "a whole number")}
    kind, words = kinds.get(declared.split(" ")[0], (object, ""))
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ConfigError(f"{where}: {name} must be {words}.")


def _texts(group: object, where: str) -> dict[str, str]:
    if not isinstance(group, dict):
        raise ConfigError(f'{where} must hold lines such as "name" = "value".')
    flat: dict[str, str] = {}
    for name, value in group.items():
        if isinstance(value, dict):  # isolation.level = "…" without quotes nests
            flat.update({f"{name}.{inner}": text for inner, text in _texts(value, where).items()})
        else:
            flat[name] = str(value).lower() if isinstance(value, bool) else str(value)
    return flat
