"""The records that Kafka keeps for itself: coordinator state, control records, and what members tell each other.

`record_types(topic)` reads the records of an internal topic; the modules declare them, one module a subject.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ottla.kproto.internal_records.coordinator import RecordTypes

_MODULES: Final = {
    "__consumer_offsets": ("consumer_offsets", "consumer_group", "share_group", "streams_group"),
    "__transaction_state": ("transaction_log",),
    "__share_group_state": ("share_state",),
}


@cache
def record_types(topic: str) -> RecordTypes:
    """The record types of an internal topic. Raises KeyError for any other topic."""
    from ottla.kproto.internal_records.coordinator import CoordinatorKey, CoordinatorValue, RecordTypes

    modules = [import_module(f"{__name__}.{name}") for name in _MODULES[topic]]
    declared = [value for module in modules for value in vars(module).values() if isinstance(value, type)]
    return RecordTypes(cls for cls in declared if issubclass(cls, CoordinatorKey | CoordinatorValue))
