"""A disk of 64 MB is filled with records of 10 KB, and everything that readers see is deleted, five times.

    make full-disk        or        python -m compat_tests.endurance.full_disk [--times 5]

Room must be there at once: the time is told from the end of `ottla topic delete-records --before end` until a record is
acknowledged. What producers have given up on must not be written afterwards and keep the room. Only root can mount the
disk. The exit code is 0 only if each time is at most `--most` seconds, and all that was acknowledged last is read.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from compat_tests.brokers.disks import Disks, can_mount
from compat_tests.brokers.ottla_broker import OttlaBroker

TOPIC: str = "large"
RECORD_BYTES: int = 10_240
DISK_BYTES: int = 64_000_000
_FULL_AFTER_S: float = 3.0
_LONGEST_FILL_S: float = 120.0
_LONGEST_WAIT_S: float = 600.0


class Filler:
    """Produces until nothing has been acknowledged for a while, and gives up what was not."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "acks": "all", "message.timeout.ms": 2_000, "request.timeout.ms": 1_000,
             "linger.ms": 5, "queue.buffering.max.kbytes": 16_384, "log_level": 0}
        )  # fmt: skip
        self.acknowledged = 0
        self.failed = 0
        self._last_s = 0.0

    def fill(self) -> None:
        self._last_s = began_s = time.monotonic()
        while time.monotonic() < min(self._last_s + _FULL_AFTER_S, began_s + _LONGEST_FILL_S):
            try:
                self._producer.produce(TOPIC, bytes(RECORD_BYTES), on_delivery=self._told)
            except BufferError:
                self._producer.poll(0.05)
            self._producer.poll(0)
        assert self.failed, f"the disk is not full after {self.acknowledged} records"

    def give_up(self) -> None:
        """Leave without an answer to what is under way."""
        self._producer.purge()

    def _told(self, error: KafkaError | None, _message: Message) -> None:
        if error is None:
            self.acknowledged += 1
            self._last_s = time.monotonic()
        else:
            self.failed += 1


def until_writable(bootstrap: str) -> tuple[float, int]:
    """How many seconds it takes until a record is acknowledged, and its offset."""
    offsets: list[int] = []

    def told(error: KafkaError | None, message: Message) -> None:
        offset = message.offset()
        if error is None and offset is not None:
            offsets.append(offset)

    producer = Producer(
        {"bootstrap.servers": bootstrap, "acks": "all", "message.timeout.ms": int(_LONGEST_WAIT_S * 1000),
         "retry.backoff.ms": 50, "retry.backoff.max.ms": 100, "linger.ms": 0, "log_level": 0}
    )  # fmt: skip
    began_s = time.monotonic()
    producer.produce(TOPIC, b"there is room", on_delivery=told)
    producer.flush(_LONGEST_WAIT_S)
    return (time.monotonic() - began_s if offsets else _LONGEST_WAIT_S), (offsets or [-1])[0]


def is_read(bootstrap: str, offset: int) -> bool:
    """Whether the record that was acknowledged is there."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "check", "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, 0, offset)])
    message = consumer.poll(30.0)
    consumer.close()
    return message is not None and message.error() is None and message.value() == b"there is room"


def await_reserve(data_dir: Path) -> None:
    """Wait until the broker has put aside the room for deletions, which it does a second after its start."""
    deadline_s = time.monotonic() + _LONGEST_FILL_S
    while not any(data_dir.glob("node-*/reserve")):
        assert time.monotonic() < deadline_s, "no room is kept in reserve"
        time.sleep(0.05)


def delete_all(bootstrap: str) -> None:
    program = str(Path(sys.executable).parent / "ottla")
    command = [program, "topic", "delete-records", "--before", "end", "-b", bootstrap, TOPIC]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--most", type=float, default=10.0, help="seconds that it may take until there is room")
    arguments = parser.parse_args()
    if not can_mount():
        print("a file system cannot be mounted: only root may", file=sys.stderr)
        return 2
    ok = True
    with tempfile.TemporaryDirectory(prefix="ottla-full-disk-") as folder:
        disks = Disks(Path(folder), [1], DISK_BYTES)
        try:
            # What the broker says is kept elsewhere: it must find room.
            place = Path(folder) / "broker"
            place.mkdir()
            (place / "data").symlink_to(Path(folder) / "node-1")
            with OttlaBroker(place) as broker:
                await_reserve(place / "data")
                admin = AdminClient({"bootstrap.servers": broker.bootstrap})
                admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result()
                for number in range(1, arguments.times + 1):
                    filler = Filler(broker.bootstrap)
                    filler.fill()
                    filler.give_up()
                    delete_all(broker.bootstrap)
                    took_s, offset = until_writable(broker.bootstrap)
                    found = is_read(broker.bootstrap, offset)
                    ok = ok and found and took_s <= arguments.most
                    print(
                        f"{number}: {filler.acknowledged} records acknowledged, {filler.failed} given up; "
                        f"writable again after {took_s:.2f} s{'' if found else ', but the record is not there'}",
                        flush=True,
                    )
        finally:
            disks.close()
    print("all good" if ok else "NOT good")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
