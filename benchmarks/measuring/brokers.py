"""The brokers that are compared, each as a fresh process on an empty folder."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from compat_tests.brokers.apache_kafka import ApacheKafka
from compat_tests.brokers.ottla_broker import OttlaBroker
from compat_tests.brokers.process import BrokerProcess, BrokerStartError

_HEAP_MB: Final = 1024
_ATTEMPTS: Final = 3

BROKERS: Final[Mapping[str, Callable[[Path], BrokerProcess]]] = {
    "ottla": OttlaBroker,
    "kafka": lambda folder: ApacheKafka(folder, heap_mb=_HEAP_MB),
}


@contextmanager
def fresh(kind: str, where: str | None = None) -> Iterator[BrokerProcess]:
    """A broker that has just been started, its folder in `where` (default: the system's temporary folder).

    It is killed after: ten thousand partitions take Kafka minutes to close.
    """
    with tempfile.TemporaryDirectory(prefix="ottla-bench-", dir=where) as folder:
        broker = _started(kind, Path(folder))
        try:
            yield broker
        finally:
            broker.kill()


def _started(kind: str, folder: Path, attempts: int = _ATTEMPTS) -> BrokerProcess:
    """Kafka is told a port that was free a moment ago; if somebody has taken it since, it gets another one."""
    broker = BROKERS[kind](folder / str(attempts))
    try:
        broker.start()
    except BrokerStartError:
        if attempts == 1:
            raise
        return _started(kind, folder, attempts - 1)
    return broker
