"""The options of `format("ottla-segments")`: those of `format("ottla")` that have a meaning for files, and a path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from ottla.pipeline.decoder import COLUMNS
from ottla.pipeline.errors import OptionError
from ottla.pipeline.source.options import SourceOptions, parse_options

__all__ = ["SegmentOptions", "parse_segment_options"]

_OPTIONS: Final = (
    "path",
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "endingOffsets",
    "failOnDataLoss",
    "includeHeaders",
    "columns",
    "maxPartitionBytes",
    "kafka.isolation.level",
    "kafka.check.crcs",
)
# As large as the parts that Spark cuts files into.
_MAX_PARTITION_BYTES: Final = 128 * 1024 * 1024
_NO_BROKER: Final = "files:1"


class SegmentOptions(NamedTuple):
    """What a scan was asked for. A task reads about `max_partition_bytes`; rows have the `columns`, or all for None."""

    path: str
    max_partition_bytes: int
    columns: tuple[str, ...] | None
    source: SourceOptions


def parse_segment_options(options: Mapping[str, str]) -> SegmentOptions:
    """Read and check all options; OptionError says which is wrong, and what to write."""
    given = {name.lower(): str(value).strip() for name, value in options.items()}
    known = {name.lower() for name in _OPTIONS}
    for name in sorted(given.keys() - known):
        # So that a job needs to change its format and its path only.
        if name == "kafka.bootstrap.servers":
            continue
        raise OptionError(f"There is no option {name} for format('ottla-segments'). There are {', '.join(_OPTIONS)}.")
    path = given.pop("path", "")
    if not path:
        raise OptionError("The path is missing: .load('DATA_DIR') names the broker's data folder, or a copy of it.")
    text = given.pop("maxpartitionbytes", str(_MAX_PARTITION_BYTES))
    if not (text.isascii() and text.isdigit() and int(text)):
        raise OptionError(f"Option maxPartitionBytes is {text!r}: write a number of bytes above 0.")
    columns = _columns(given.pop("columns", None))
    if columns is not None and "headers" in columns:
        given["includeheaders"] = "true"
    given.setdefault("kafka.isolation.level", "read_committed")
    source = parse_options(given | {"kafka.bootstrap.servers": _NO_BROKER}, is_stream=False)
    return SegmentOptions(path.removeprefix("file:"), int(text), columns, source)


def _columns(text: str | None) -> tuple[str, ...] | None:
    """The columns that are named, in the order that they always have."""
    if text is None:
        return None
    named = {name.strip().lower() for name in text.split(",")}
    if not named <= {name.lower() for name in COLUMNS}:
        raise OptionError(f"Option columns is {text!r}: write names out of {', '.join(COLUMNS)}, with commas between.")
    return tuple(name for name in COLUMNS if name.lower() in named)
