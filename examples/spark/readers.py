"""A table of Parquet read without Spark: the same rows by pandas, pyarrow, DuckDB and Polars.

Each file has the columns that the table had when it was written, so each reader is told to take all of them. Folders
whose names begin with an underscore are Spark's own.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

Rows = list[dict[str, Any]]


def by_pandas(table: Path) -> Rows:
    import pandas as pd

    frames = [pd.read_parquet(path) for path in files(table)]
    rows: Rows = pd.concat(frames, ignore_index=True).astype(object).to_dict("records")
    return [{name: None if pd.isna(value) else value for name, value in row.items()} for row in rows]


def by_pyarrow(table: Path) -> Rows:
    import pyarrow as pa
    import pyarrow.dataset as ds

    paths = files(table)
    schema = pa.unify_schemas([ds.dataset(path).schema for path in paths])
    rows: Rows = ds.dataset(paths, schema=schema).to_table().to_pylist()
    return rows


def by_duckdb(table: Path) -> Rows:
    import duckdb

    found = duckdb.read_parquet([str(path) for path in files(table)], union_by_name=True)
    return [dict(zip(found.columns, row, strict=True)) for row in found.fetchall()]


def by_polars(table: Path) -> Rows:
    import polars as pl

    rows: Rows = pl.concat([pl.read_parquet(path) for path in files(table)], how="diagonal").to_dicts()
    return rows


def files(table: Path) -> list[Path]:
    """The table's files, without those of its folders that begin with an underscore."""
    return [
        path
        for path in sorted(table.rglob("*.parquet"))
        if not any(part.startswith(("_", ".")) for part in path.relative_to(table).parts)
    ]


READERS: Final[dict[str, Callable[[Path], Rows]]] = {
    "pandas": by_pandas,
    "pyarrow": by_pyarrow,
    "duckdb": by_duckdb,
    "polars": by_polars,
}
