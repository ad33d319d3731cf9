"""The options of `format("ottla-segments")`: those of `format("ottla")` that have a meaning for files, and a path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from ottla.pipeline.decoder import COLUMNS
from ottla.pipeline.errors import OptionError
from ottla.pipeline.options.connection import BOOLEANS
from ottla.pipeline.options.texts import choice
from ottla.pipeline.source.options import SourceOptions, parse_options

__all__ = ["SegmentOptions", "parse_segment_options"]

_OPTIONS: Final = (
    "path",
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "failOnDataLoss",
    "includeHeaders",
    "columns",
    "maxPartitionBytes",
    "pushFilters",
    "clusterId",
    "topicId",
    "kafka.isolation.level",
    "kafka.check.crcs",
)
# What follows is a setting of obstore, as its own users write it.
_STORE_PREFIX: Final = "store."
# As large as the parts that Spark cuts files into.
_MAX_PARTITION_BYTES: Final = 128 * 1024 * 1024
_NO_BROKER: Final = "files:1"


class SegmentOptions(NamedTuple):
    """What a scan was asked for. A task reads about `max_partition_bytes`; rows have the `columns`, or all for None.

    An object store may have several clusters, and several topics of the same name: `cluster_id` and `topic_ids` (as
    Kafka's tools show them) say which are meant. `store_config` are obstore's settings.
    """

    path: str
    max_partition_bytes: int
    columns: tuple[str, ...] | None
    push_filters: bool
    cluster_id: str | None
    topic_ids: frozenset[str]
    store_config: dict[str, str]
    source: SourceOptions

    @property
    def only_for_objects(self) -> list[str]:
        """The options among these that have no meaning for a data folder."""
        given = ["clusterId"] if self.cluster_id is not None else []
        given += ["topicId"] if self.topic_ids else []
        return given + [f"{_STORE_PREFIX}{name}" for name in self.store_config]


def parse_segment_options(options: Mapping[str, str]) -> SegmentOptions:
    """Read and check all options; OptionError says which is wrong, and what to write."""
    given = {name.lower(): str(value).strip() for name, value in options.items()}
    store_config = {
        name.removeprefix(_STORE_PREFIX): given.pop(name) for name in list(given) if name.startswith(_STORE_PREFIX)
    }
    known = {name.lower() for name in _OPTIONS}
    for name in sorted(given.keys() - known):
        # So that a job needs to change its format and its path only.
        if name == "kafka.bootstrap.servers":
            continue
        raise OptionError(
            f"There is no option {name} for format('ottla-segments'). There are {', '.join(_OPTIONS)}, and "
            f"{_STORE_PREFIX}* for an object store."
        )
    path = given.pop("path", "")
    if not path:
        raise OptionError(
            "The path is missing: .load('DATA_DIR') names the broker's data folder, a copy of it, or an object store."
        )
    text = given.pop("maxpartitionbytes", str(_MAX_PARTITION_BYTES))
    if not (text.isascii() and text.isdigit() and int(text)):
        raise OptionError(f"Option maxPartitionBytes is {text!r}: write a number of bytes above 0.")
    columns = _columns(given.pop("columns", None))
    if columns is not None and "headers" in columns:
        given["includeheaders"] = "true"
    push_filters = choice(given, "pushFilters", BOOLEANS, "false")
    cluster_id = given.pop("clusterid", None)
    topic_ids = frozenset(filter(None, (text.strip() for text in given.pop("topicid", "").split(","))))
    given.pop("pushfilters", None)
    given.setdefault("kafka.isolation.level", "read_committed")
    source = parse_options(given | {"kafka.bootstrap.servers": _NO_BROKER}, is_stream=False)
    return SegmentOptions(path, int(text), columns, push_filters, cluster_id, topic_ids, store_config, source)


def _columns(text: str | None) -> tuple[str, ...] | None:
    """The columns that are named, in the order that they always have."""
    if text is None:
        return None
    named = {name.strip().lower() for name in text.split(",")}
    if not named <= {name.lower() for name in COLUMNS}:
        raise OptionError(f"Option columns is {text!r}: write names out of {', '.join(COLUMNS)}, with commas between.")
    return tuple(name for name in COLUMNS if name.lower() in named)
