"""The catalogue in which a job's Iceberg tables stand."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.pipeline.tables.errors import TableError

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

__all__ = ["open_catalogue"]

_NAME: Final = "ottla"
_FILE: Final = "catalogue.sqlite"


def open_catalogue(settings: Mapping[str, str]) -> Catalog:
    """The catalogue that `[iceberg]` declares, by PyIceberg's names.

    A `warehouse` alone, a folder of this machine, has its catalogue in an SQLite file. TableError if PyIceberg is not
    installed, or if there is no such catalogue.
    """
    if find_spec("pyiceberg") is None:
        raise TableError("Iceberg tables need PyIceberg: install Ottla with its extra `iceberg`.")
    from pyiceberg.catalog import load_catalog

    entries = dict(settings)
    if not entries.keys() & {"type", "uri", "py-catalog-impl"}:
        entries = _embedded(entries)
    try:
        return load_catalog(entries.pop("name", _NAME), **entries)
    except Exception as error:
        raise TableError(
            f"The Iceberg catalogue cannot be opened; check [iceberg] in the configuration: {str(error)[:300]}"
        ) from error


def _embedded(entries: Mapping[str, str]) -> dict[str, str]:
    folder = Path(entries["warehouse"]).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    return {**entries, "type": "sql", "uri": f"sqlite:///{folder / _FILE}", "warehouse": str(folder)}
