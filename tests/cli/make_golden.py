"""Writes the data folders of golden/ with the installed Ottla: `python tests/cli/make_golden.py`.

Once for each format that was ever released; those of older releases are never written again.
"""

from __future__ import annotations

import json
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

GOLDEN = Path(__file__).with_name("golden")
FOREVER = "retention.ms=-1"


def main() -> None:
    for name, number in (("format-1-stopped", signal.SIGTERM), ("format-1-killed", signal.SIGKILL)):
        with tempfile.TemporaryDirectory() as temporary:
            data_dir = Path(temporary) / "data"
            _fill(data_dir, number)
            _clean(data_dir)
            shutil.rmtree(GOLDEN / name, ignore_errors=True)
            shutil.copytree(data_dir, GOLDEN / name)


def _fill(data_dir: Path, number: int) -> None:
    ottla = [sys.executable, "-m", "ottla.cli"]
    settings = ("offsets.topic.num.partitions=2", "transaction.state.log.num.partitions=2", "log.cleaner.enable=false")
    flags = [word for setting in settings for word in ("--set", setting)]
    serve = [*ottla, "serve", "--port", "0", "--data-dir", str(data_dir), *flags]
    broker = subprocess.Popen(serve, stdout=subprocess.PIPE)
    assert broker.stdout is not None
    bootstrap = f"127.0.0.1:{json.loads(broker.stdout.readline())['port']}"

    def run(*arguments: str) -> None:
        subprocess.run([*ottla, *arguments, "--bootstrap", bootstrap], check=True)

    run("topic", "create", "plain", "-p", "3", "-c", FOREVER)
    run("topic", "create", "compacted", "-c", "cleanup.policy=compact")
    run("topic", "create", "transactions", "-c", FOREVER)
    plain = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "compression.type": "zstd"})
    for n in range(300):
        plain.produce("plain", f"value {n}", key=f"key {n}", partition=n % 3, headers={"n": str(n)}, timestamp=n + 1)
        plain.produce("compacted", f"value {n}", key=f"key {n % 10}")
        if n % 50 == 49:
            plain.flush()
    transactional = Producer({"bootstrap.servers": bootstrap, "transactional.id": "golden"})
    transactional.init_transactions()
    for ends, value in ((transactional.commit_transaction, "kept"), (transactional.abort_transaction, "dropped")):
        transactional.begin_transaction()
        transactional.produce("transactions", value)
        transactional.flush()
        ends()
    readers = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers", "enable.auto.commit": False})
    readers.commit(offsets=[TopicPartition("plain", 0, 42)], asynchronous=False)
    readers.close()
    run("config", "set", "topic", "plain", "max.message.bytes=2000000")
    run("quota", "set", "--user", "ann", "producer_byte_rate=1048576")
    broker.send_signal(number)
    broker.communicate()


def _clean(data_dir: Path) -> None:
    """One database file without its log, and no lock."""
    with closing(sqlite3.connect(data_dir / "cluster.sqlite")) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    for name in ("cluster.sqlite-wal", "cluster.sqlite-shm", "node-1/lock"):
        (data_dir / name).unlink(missing_ok=True)


if __name__ == "__main__":
    main()
