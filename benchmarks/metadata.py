"""The metadata stores: how soon other processes hear of a change, what large changes take, and what idle nodes cost.

    python -m benchmarks.metadata [--changes 200] [--idle-seconds 20] [--store sqlite|etcd|both]

- commit: one transaction of one key, until it is answered.
- heard: from the start of that commit until a watcher in another process has received it.
- idle: CPU of three nodes that nobody asks for anything, in percent of one core each.
- topic: CreateTopics of one partition until it is answered, which is when its leader serves it.
- partitions: CreateTopics of 10,000 partitions likewise.

etcd is one member on this machine, Debian's `etcd`, on the folder for temporary files. Medians and 99th percentiles of
wall time; all processes share one machine and its monotonic clock.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import trio

from ottla.client.admin.topics import create_topic
from ottla.client.client import Client
from ottla.metastore.address import parse_metadata_address
from ottla.metastore.etcd import open_etcd_store
from ottla.metastore.etcd_client import EtcdAccess
from ottla.metastore.sqlite import open_sqlite_store
from ottla.metastore.store import MetadataStore, Put
from tests.etcd import Etcd

KEY = "/benchmark/changes"


async def open_store(place: str) -> MetadataStore:
    address = parse_metadata_address(place) if "://" in place else None
    if address is not None:
        return await open_etcd_store(address, EtcdAccess())
    return await open_sqlite_store(Path(place) / "cluster.sqlite", lambda: time.time_ns() // 1_000_000)


async def listen(place: str, changes: int) -> None:
    """In another process: print when each change is received."""
    store = await open_store(place)
    async with store.watch(KEY, (await store.list(KEY)).revision) as watch:
        print("listening", flush=True)
        heard = []
        for _ in range(changes):
            await watch.receive()
            heard.append(time.monotonic())
    print(json.dumps(heard), flush=True)
    await store.close()


async def latencies(place: str, changes: int) -> dict[str, float]:
    store = await open_store(place)
    words = [sys.executable, "-m", "benchmarks.metadata", "--listen", place, "--changes", str(changes)]
    listener = await trio.to_thread.run_sync(lambda: subprocess.Popen(words, stdout=subprocess.PIPE, text=True))
    assert listener.stdout is not None
    await trio.to_thread.run_sync(listener.stdout.readline)
    begun, answered = [], []
    for number in range(changes):
        begun.append(time.monotonic())
        await store.commit([], [Put(KEY, b"%d" % number)])
        answered.append(time.monotonic())
        await trio.sleep(0.01)
    heard = json.loads(await trio.to_thread.run_sync(listener.stdout.readline))
    listener.wait()
    listener.stdout.close()
    await store.close()
    commits = [(after - before) * 1000 for before, after in zip(begun, answered, strict=True)]
    hearings = [(after - before) * 1000 for before, after in zip(begun, heard, strict=True)]
    return {
        "commit_ms": statistics.median(commits),
        "commit_p99_ms": statistics.quantiles(commits, n=100)[98],
        "heard_ms": statistics.median(hearings),
        "heard_p99_ms": statistics.quantiles(hearings, n=100)[98],
    }


@contextmanager
def three_nodes(folder: Path, metadata: str | None) -> Iterator[list[tuple[int, tuple[str, int]]]]:
    """Three nodes, as process ids and addresses: of one machine, or as if of three."""
    processes = []
    try:
        for node_id in (1, 2, 3):
            words = [sys.executable, "-m", "ottla.cli", "serve", "--port", "0", "--set", f"node.id={node_id}"]
            words += ["--data-dir", str(folder), "--set", "ottla.log.level=warning"]
            words += [] if metadata is None else ["--metadata", metadata]
            processes.append(subprocess.Popen(words, stdout=subprocess.PIPE, text=True))
        nodes = []
        for process in processes:
            assert process.stdout is not None
            ready = json.loads(process.stdout.readline())
            nodes.append((process.pid, (ready["host"], ready["port"])))
        yield nodes
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(30)


def cpu_seconds(pid: int) -> float:
    """Of all its threads that are still there, to the nanosecond."""
    return sum(int(path.read_text().split()[0]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


def cluster(folder: Path, metadata: str | None, idle_seconds: float) -> dict[str, float]:
    with three_nodes(folder, metadata) as nodes, Client([nodes[0][1]]) as client:
        time.sleep(2)
        before = [cpu_seconds(pid) for pid, _ in nodes]
        time.sleep(idle_seconds)
        idle = [cpu_seconds(pid) - seconds for (pid, _), seconds in zip(nodes, before, strict=True)]
        topics = []
        for number in range(20):
            started = time.perf_counter()
            create_topic(client, f"t{number}", 1, {})
            topics.append((time.perf_counter() - started) * 1000)
        started = time.perf_counter()
        create_topic(client, "wide", 10_000, {})
        return {
            "idle_percent": max(idle) / idle_seconds * 100,
            "topic_ms": statistics.median(topics),
            "partitions_s": time.perf_counter() - started,
        }


def measure(kind: str, changes: int, idle_seconds: float) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        if kind == "sqlite":
            found = trio.run(latencies, folder, changes)
            return {**found, **cluster(Path(folder, "nodes"), None, idle_seconds)}
        etcd = Etcd(Path(folder, "etcd"))
        etcd.start()
        try:
            found = trio.run(latencies, f"etcd://{etcd.hosts}/latencies", changes)
            nodes = cluster(Path(folder, "nodes"), f"etcd://{etcd.hosts}/nodes", idle_seconds)
        finally:
            etcd.close()
        return {**found, **nodes}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--changes", type=int, default=200)
    parser.add_argument("--idle-seconds", type=float, default=20)
    parser.add_argument("--store", choices=("sqlite", "etcd", "both"), default="both")
    parser.add_argument("--listen", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.listen is not None:
        trio.run(listen, arguments.listen, arguments.changes)
        return
    for kind in ("sqlite", "etcd") if arguments.store == "both" else (arguments.store,):
        print(json.dumps({"store": kind, **measure(kind, arguments.changes, arguments.idle_seconds)}), flush=True)


if __name__ == "__main__":
    main()
