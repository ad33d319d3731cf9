"""Apache Kafka and Ottla side by side, for what is compared word by word."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TypeAlias

from compat_tests.brokers.apache_kafka import ApacheKafka
from compat_tests.brokers.ottla_broker import OttlaBroker
from compat_tests.brokers.process import BrokerProcess
from compat_tests.java import QUICK

Pair: TypeAlias = tuple[BrokerProcess, BrokerProcess]


class SideBySide:
    """Both, from when somebody needs them until they are stopped; then anew.

    Apache Kafka takes three hundredths of a core when it has nothing to do.
    """

    def __init__(self) -> None:
        self._running = ExitStack()
        self._pair: Pair | None = None

    def start(self, folder: Path) -> Pair:
        """Those that run, or else new ones in a folder."""
        if self._pair is None:
            oracle = ApacheKafka(folder / "kafka", jvm_options=QUICK)
            self._pair = (
                self._running.enter_context(oracle),
                self._running.enter_context(OttlaBroker(folder / "ottla")),
            )
        return self._pair

    def stop(self) -> None:
        self._pair = None
        self._running.close()
