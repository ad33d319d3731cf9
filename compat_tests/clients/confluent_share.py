"""librdkafka's share consumer, by way of confluent-kafka."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from confluent_kafka import AcknowledgeType, ShareConsumer

from compat_tests.clients.java_share import POLL_MS, Delivered

_KINDS = {
    "ACCEPT": AcknowledgeType.ACCEPT,
    "RELEASE": AcknowledgeType.RELEASE,
    "REJECT": AcknowledgeType.REJECT,
}


class ConfluentShareConsumer:
    """A member of a share group that acknowledges explicitly; as `JavaShareConsumer`. It does not tell deliveries."""

    def __init__(
        self, bootstrap: str, group: str, topics: Sequence[str], config: Mapping[str, str] | None = None
    ) -> None:
        settings = {"bootstrap.servers": bootstrap, "group.id": group, "share.acknowledgement.mode": "explicit"}
        self._consumer = ShareConsumer({**settings, **(config or {})})
        self._consumer.subscribe(list(topics))

    def poll(self, timeout_ms: int = POLL_MS) -> list[Delivered]:
        delivered = []
        for message in self._consumer.poll(timeout_ms / 1000):
            assert message.error() is None, message.error()
            topic, partition, offset, value = message.topic(), message.partition(), message.offset(), message.value()
            assert topic is not None
            assert partition is not None
            assert offset is not None
            assert isinstance(value, bytes)
            delivered.append(Delivered(topic, partition, offset, value, delivery_count=0))
        return delivered

    def poll_until_some(self, timeout_seconds: float = 30) -> list[Delivered]:
        deadline = time.monotonic() + timeout_seconds
        while not (records := self.poll()):
            assert time.monotonic() < deadline, "nothing was delivered in time"
        return records

    def acknowledge(self, records: Sequence[Delivered], kind: str = "ACCEPT") -> dict[str, int]:
        """Acknowledge and commit; the error code for each partition."""
        for record in records:
            self._consumer.acknowledge_offset(record.topic, record.partition, record.offset, _KINDS[kind])
        outcomes = self._consumer.commit_sync(30)
        return {
            f"{partition.topic}-{partition.partition}": 0 if error is None else int(error.args[0].code())
            for partition, error in outcomes.items()
        }

    def close(self) -> None:
        self._consumer.close()
