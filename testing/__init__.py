"""A broker for tests: `with Broker() as broker:` gives a real one, in this process, in a few hundredths of a second.

`with Cluster() as cluster:` gives three, as processes that can be killed and paused.

The names are loaded when they are first used, so the pytest plugin costs nothing if no test asks for a broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.testing.broker import Broker
    from ottla.testing.cluster import Cluster
    from ottla.testing.container import KafkaContainer
    from ottla.testing.errors import BrokerError, WaitTimeoutError
    from ottla.testing.filters import run_filter
    from ottla.testing.groups import Group
    from ottla.testing.record import Record
    from ottla.testing.requests import Request

__all__ = [
    "Broker",
    "BrokerError",
    "Cluster",
    "Group",
    "KafkaContainer",
    "Record",
    "Request",
    "WaitTimeoutError",
    "run_filter",
]

_HOMES = {
    "Broker": "broker",
    "BrokerError": "errors",
    "Cluster": "cluster",
    "Group": "groups",
    "KafkaContainer": "container",
    "Record": "record",
    "Request": "requests",
    "WaitTimeoutError": "errors",
    "run_filter": "filters",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{home}"), name)
