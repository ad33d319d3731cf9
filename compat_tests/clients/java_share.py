"""Kafka's own share consumer, by way of the driver in compat_tests/java/Driver.java."""

from __future__ import annotations

import time
from base64 import b64decode
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from compat_tests.clients.java_client import JavaDriver

POLL_MS = 500


class Delivered(NamedTuple):
    """One delivery of one record."""

    topic: str
    partition: int
    offset: int
    value: bytes
    delivery_count: int


class JavaShareConsumer:
    """A member of a share group. It acknowledges explicitly unless its configuration says otherwise."""

    def __init__(
        self,
        driver: JavaDriver,
        bootstrap: str,
        group: str,
        topics: Sequence[str],
        config: Mapping[str, str] | None = None,
    ) -> None:
        self._driver = driver
        self.id = next(driver.ids)
        settings = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "share.acknowledgement.mode": "explicit",
            **(config or {}),
        }
        driver.ask(op="open_share_consumer", id=self.id, config=settings, topics=list(topics))

    def poll(self, timeout_ms: int = POLL_MS) -> list[Delivered]:
        answer = self._driver.ask(op="poll_share", id=self.id, timeout_ms=timeout_ms)
        return [
            Delivered(
                record["topic"],
                record["partition"],
                record["offset"],
                b64decode(record["value"]),
                record["delivery_count"],
            )
            for record in answer["records"]
        ]

    def poll_until_some(self, timeout_seconds: float = 30) -> list[Delivered]:
        deadline = time.monotonic() + timeout_seconds
        while not (records := self.poll()):
            assert time.monotonic() < deadline, "nothing was delivered in time"
        return records

    def acknowledge(self, records: Sequence[Delivered], kind: str = "ACCEPT") -> dict[str, int]:
        """Acknowledge and commit; the error code for each partition."""
        named = [
            {"topic": record.topic, "partition": record.partition, "offset": record.offset, "type": kind}
            for record in records
        ]
        outcomes: dict[str, int] = self._driver.ask(op="acknowledge_share", id=self.id, records=named)["outcomes"]
        return outcomes

    def close(self) -> None:
        self._driver.ask(op="close", id=self.id)
