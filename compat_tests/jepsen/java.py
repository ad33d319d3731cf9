"""Java's clients: Kafka's verifiable producer and consumers, which tell what they do in JSON, line by line."""

from __future__ import annotations

import json
import subprocess
import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from compat_tests.java import java
from ottla.simulation.cluster.histories.attempts import Partition
from ottla.simulation.cluster.histories.history import History

__all__ = ["GROUP", "TOPIC", "JavaClients", "wrong_reads"]

TOPIC: Final = "java"
GROUP: Final = "java-group"
_RECORDS_A_SECOND: Final = 20
_STOP_S: Final = 90.0


class Tool:
    """A process of one of Kafka's tools, and what it has told so far."""

    def __init__(self, errors: Path, *arguments: str) -> None:
        self.told: list[dict[str, Any]] = []
        with errors.open("wb") as log:
            self._process = subprocess.Popen(
                java(*arguments, heap_mb=64, log_level="warn"), stdout=subprocess.PIPE, stderr=log, text=True
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def stop(self) -> None:
        """Ask it to end, and wait for that."""
        self._process.terminate()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout:
            for line in self._process.stdout:
                try:
                    self.told.append(json.loads(line))
                except ValueError:
                    continue  # it may be ended amid a line

    def events(self, name: str) -> list[dict[str, Any]]:
        return [event for event in self.told if event.get("name") == name]


class JavaClients:
    """An idempotent producer with acks=all, and two consumers of a group that commit what they have consumed."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        address = ("--bootstrap-server", bootstrap, "--topic", TOPIC)
        speed = ("--acks", "-1", "--throughput", str(_RECORDS_A_SECOND), "--value-prefix", "1")
        self._producer = Tool(folder / "producer.log", "org.apache.kafka.tools.VerifiableProducer", *address, *speed)
        group = ("--group-id", GROUP, "--session-timeout", "6000", "--reset-policy", "earliest")
        self._consumers = [
            Tool(folder / f"consumer{number}.log", "org.apache.kafka.tools.VerifiableConsumer", *address, *group)
            for number in range(2)
        ]

    @property
    def done(self) -> int:
        """How many records were acknowledged."""
        return len(self._producer.events("producer_send_success"))

    def stop_producing(self) -> None:
        self._producer.stop()

    def stop(self) -> None:
        for tool in (self._producer, *self._consumers):
            tool.stop()

    def consumed(self) -> dict[int, int]:
        """Up to which offset each partition has been consumed, by whom ever."""
        ends: defaultdict[int, int] = defaultdict(int)
        for consumer in self._consumers:
            for event in consumer.events("records_consumed"):
                for read in event["partitions"]:
                    ends[read["partition"]] = max(ends[read["partition"]], read["maxOffset"] + 1)
        return dict(ends)

    def tell(self, history: History, found: Mapping[Partition, Mapping[int, bytes]]) -> None:
        """Write into the history what the producer did. What it was not told of may be anywhere, or nowhere.

        `found` is what the topic holds: what nobody was told of has been sent to where it is.
        """
        places = {value: partition for partition, records in found.items() for value in records.values()}
        told = {}
        for event in self._producer.events("producer_send_success"):
            told[event["value"].encode()] = (TOPIC, event["partition"]), event["offset"]
        for value in sorted({*places, *told}, key=_number):
            partition, offset = told.get(value, (places.get(value), None))
            assert partition is not None
            attempt = history.begin("java", partition, _number(value), value=value)
            if offset is not None:
                history.acknowledge(attempt, offset)

    def wrong(self, found: Mapping[Partition, Mapping[int, bytes]]) -> list[str]:
        """What the group's members did wrong, in sentences."""
        return [
            sentence
            for consumer_number, consumer in enumerate(self._consumers)
            for sentence in wrong_reads(f"java consumer {consumer_number}", consumer.told, found)
        ]


def wrong_reads(
    name: str, told: Sequence[Mapping[str, Any]], found: Mapping[Partition, Mapping[int, bytes]]
) -> list[str]:
    """Records that a member has left out while it owned a partition, or that it was given without owning it."""
    wrong = []
    positions: dict[int, int | None] = {}
    for event in told:
        kind = event.get("name")
        if kind == "partitions_assigned":
            positions.update((each["partition"], None) for each in event["partitions"])
        elif kind == "partitions_revoked":
            for each in event["partitions"]:
                positions.pop(each["partition"], None)
        elif kind == "records_consumed":
            for read in event["partitions"]:
                index, first, last = read["partition"], read["minOffset"], read["maxOffset"]
                if index not in positions:
                    wrong.append(f"{name} reads partition {index}, which it does not own")
                    continue
                before = positions[index]
                offsets = found[TOPIC, index]
                if before is not None and any(offset in offsets for offset in range(before, first)):
                    wrong.append(f"{name} goes on at {first} of partition {index}, and was at {before}")
                if read["count"] != sum(offset in offsets for offset in range(first, last + 1)):
                    wrong.append(f"{name} has read {read['count']} records of partition {index} from {first} to {last}")
                positions[index] = last + 1
    return wrong


def _number(value: bytes) -> int:
    return int(value.partition(b".")[2])
