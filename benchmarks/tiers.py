"""Tiered storage: what copying costs, how fast what was copied is read, and what very many segments take.

    python -m benchmarks.tiers [--only copy read first segments memory disk] [--gigabytes 1] [--rounds 3]

`copy`: four partitions are filled by librdkafka, on a broker whose topic is not tiered and on one whose topic is, which
copies to a folder meanwhile; in turn. The cost of copying is the difference of the broker's CPU seconds, by when all is
copied. `read`: a broker that has just started, with an empty cache and only the end on its disk, is read by librdkafka;
out of a folder, and out of moto, which has the interface of S3. Beside it the same objects are read in the same ranges
by obstore alone. `first`: the requests to the object store of the first fetch of such a broker. `segments`: the time
until a broker with 100,000 segments in its object store, of 100 partitions, has answered where each begins, and its
memory; and those of one that has none there. `memory`: the CPU seconds of filling parts of new memory, and one again
and again. `disk`: the CPU seconds of a plain program that writes parts, syncs each, and reads them back.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, Final
from uuid import UUID, uuid4

import obstore
from obstore.store import from_url

from benchmarks import librdkafka
from benchmarks.measuring.process_cost import cost
from benchmarks.workloads import PRODUCER, create_topic
from compat_tests.brokers.ottla_broker import OttlaBroker
from compat_tests.brokers.tiered import tiered_ottla
from compat_tests.tiers.conftest import CREDENTIALS
from compat_tests.tiers.remote_topic import EARLIEST, RemoteTopic
from compat_tests.wire.wire import Wire
from ottla.kproto.messages.cluster.describe_cluster import DescribeClusterRequest
from ottla.kproto.messages.data.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.kproto.messages.topics.metadata import MetadataRequest, MetadataRequestTopic
from ottla.storage.state.leader_epochs import EpochEntry
from ottla.tiers.manifest import Manifest, RemoteSegment
from ottla.tiers.names import TopicNames, UploadId
from ottla.tiers.packing import PART_BYTES
from tests.tiers.http_faults import faulty_proxy
from tests.tiers.s3 import BUCKET, config_of, s3_server

TOPIC: Final = "tiered"
PARTITIONS: Final = 4
RECORD_BYTES: Final = 1_000
RANGE_BYTES: Final = 4 << 20
RANGES_AT_ONCE: Final = 8
PARTS: Final = 16
SEGMENTS, SEGMENT_PARTITIONS = 100_000, 100
TIERED: Final = {"remote.storage.enable": "true", "retention.ms": "-1"}
SMALL_SEGMENTS: Final = {"segment.bytes": str(32 << 20)}
ONLY_THE_END: Final = {"local.retention.bytes": "1"}
EVERY_SECOND: Final = {"remote.log.manager.task.interval.ms": "1000"}
#: What is read: the last segments are not sealed.
REMOTE_SHARE: Final = 0.6


@contextmanager
def object_store(kind: str, folder: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """The address of an empty one, and what obstore must know of it."""
    if kind == "folder":
        (folder / "remote").mkdir(parents=True)
        yield f"file://{folder / 'remote'}", {}
        return
    with s3_server() as endpoint:
        os.environ |= {**CREDENTIALS, "AWS_ENDPOINT_URL": endpoint}
        yield f"s3://{BUCKET}/{uuid4()}", config_of(endpoint)


def fill(broker: OttlaBroker, gigabytes: float, configs: Mapping[str, str]) -> float:
    """MB/s at which records were taken."""
    create_topic(broker, TOPIC, PARTITIONS, {**SMALL_SEGMENTS, **configs})
    count = int(gigabytes * 1e9 / RECORD_BYTES)
    done = librdkafka.run("produce", broker.bootstrap, TOPIC, PARTITIONS, count, RECORD_BYTES, "acks=1", *PRODUCER)
    seconds: float = done["seconds"]
    return gigabytes * 1e3 / seconds


def settled(count: Callable[[], int]) -> int:
    """What something is when it has not changed for two seconds."""
    last = -1
    while last != (last := count()):
        time.sleep(2)
    return last


def copied_bytes(remote: Path) -> int:
    return sum(path.stat().st_size for path in remote.rglob("segments/*"))


def copy_once(gigabytes: float, *, is_tiered: bool) -> dict[str, float]:
    with (
        tempfile.TemporaryDirectory() as name,
        object_store("folder", Path(name)) as (url, _),
        tiered_ottla(Path(name), url=url, overrides=EVERY_SECOND) as broker,
    ):
        before = cost(broker.pid).cpu_s
        speed = fill(broker, gigabytes, TIERED if is_tiered else {})
        copied = settled(lambda: copied_bytes(Path(name) / "remote"))
        return {"mb_per_s": speed, "cpu_s": cost(broker.pid).cpu_s - before, "copied_gb": copied / 1e9}


def copy(gigabytes: float, rounds: int) -> dict[str, float]:
    runs: dict[bool, list[dict[str, float]]] = {False: [], True: []}
    for number in range(rounds):
        for is_tiered in (False, True) if number % 2 == 0 else (True, False):
            runs[is_tiered].append(copy_once(gigabytes, is_tiered=is_tiered))
            print(f"  {'tiered' if is_tiered else 'plain'}: {runs[is_tiered][-1]}", flush=True)
    median = {
        (is_tiered, name): statistics.median(run[name] for run in runs[is_tiered])
        for is_tiered in runs
        for name in ("mb_per_s", "cpu_s", "copied_gb")
    }
    return {
        "copy_cpu_s_per_gb": (median[True, "cpu_s"] - median[False, "cpu_s"]) / median[True, "copied_gb"],
        "produce_mb_per_s": median[False, "mb_per_s"],
        "produce_share_while_copying": median[True, "mb_per_s"] / median[False, "mb_per_s"],
    }


def alone(url: str, config: dict[str, str]) -> float:
    """MB/s of obstore, which reads the same objects in the same ranges."""
    settings: Any = config or None
    store = from_url(url, config=settings, client_options={"allow_http": True} if config else None)
    parts = [each for page in obstore.list(store) for each in page if "/segments/" in each["path"]]
    ranges = [
        (each["path"], start, min(start + RANGE_BYTES, each["size"]))
        for each in parts
        for start in range(0, each["size"], RANGE_BYTES)
    ]

    def get(one: tuple[str, int, int]) -> int:
        path, start, end = one
        return len(obstore.get_range(store, path, start=start, end=end))

    began = time.perf_counter()
    with ThreadPoolExecutor(RANGES_AT_ONCE) as threads:
        total = sum(threads.map(get, ranges))
    return total / 1e6 / (time.perf_counter() - began)


def consume(broker: OttlaBroker, gigabytes: float) -> dict[str, float]:
    count = int(gigabytes * 1e9 / RECORD_BYTES)
    before = cost(broker.pid).cpu_s
    done = librdkafka.run("consume", broker.bootstrap, TOPIC, PARTITIONS, count)
    megabytes = count * RECORD_BYTES / 1e6
    return {
        "mb_per_s": megabytes / done["seconds"],
        "cpu_s_per_gb": (cost(broker.pid).cpu_s - before) / megabytes * 1e3,
    }


def read(gigabytes: float, rounds: int) -> dict[str, float]:
    found: dict[str, float] = {}
    for kind in ("folder", "s3"):
        runs = read_from(kind, gigabytes, rounds)
        found |= {f"{kind}_{figure}": statistics.median(run[figure] for run in runs) for figure in runs[0]}
    return found


def read_from(kind: str, gigabytes: float, rounds: int) -> list[dict[str, float]]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        url, config = stack.enter_context(object_store(kind, folder))
        broker = stack.enter_context(tiered_ottla(folder, url=url, overrides=EVERY_SECOND))
        fill(broker, gigabytes, {**TIERED, **ONLY_THE_END})
        wait_until_remote(broker, int(gigabytes * 1e9 / RECORD_BYTES / PARTITIONS * REMOTE_SHARE))
        runs = []
        for _ in range(rounds):
            empty_cache(broker)
            runs.append(consume(broker, gigabytes * REMOTE_SHARE) | {"alone_mb_per_s": alone(url, config)})
            print(f"  {kind}: {runs[-1]}", flush=True)
    return runs


def wait_until_remote(broker: OttlaBroker, above: int) -> None:
    """Until all records up to this offset, in each partition, are in the object store only."""
    with closing(Wire(broker.bootstrap)) as wire:
        for partition in range(PARTITIONS):
            RemoteTopic(wire, TOPIC).wait_until_remote(above, partition)


def empty_cache(broker: OttlaBroker) -> None:
    """Start it again, without what it has read."""
    broker.stop()
    for cache in broker.folder.glob("data/node-*/remote-cache"):
        shutil.rmtree(cache)
    broker.start()
    with closing(Wire(broker.bootstrap)) as wire:
        topic = RemoteTopic(wire, TOPIC)
        while any(topic.offset(EARLIEST, partition) != 0 for partition in range(PARTITIONS)):
            time.sleep(0.05)


def first(gigabytes: float, rounds: int) -> dict[str, float]:
    """The requests of one fetch."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        endpoint = stack.enter_context(s3_server())
        proxy, address = stack.enter_context(faulty_proxy(endpoint))
        os.environ |= {**CREDENTIALS, "AWS_ENDPOINT_URL": address}
        broker = stack.enter_context(tiered_ottla(folder, url=f"s3://{BUCKET}/{uuid4()}", overrides=EVERY_SECOND))
        fill(broker, 0.3, {**TIERED, **ONLY_THE_END})
        wait_until_remote(broker, 0)
        empty_cache(broker)
        before = settled(lambda: len(proxy.faults))
        with closing(Wire(broker.bootstrap)) as wire:
            asked = FetchTopic(
                topic=TOPIC, partitions=[FetchPartition(partition=0, fetch_offset=1000, partition_max_bytes=1 << 20)]
            )
            began = time.perf_counter()
            answer = wire.call(FetchRequest(max_wait_ms=30_000, min_bytes=1, max_bytes=1 << 20, topics=[asked]), 12)
            took = time.perf_counter() - began
            assert answer.responses[0].partitions[0].records
        return {"requests": len(proxy.faults) - before, "ms": took * 1000}


def started(broker: OttlaBroker) -> dict[str, float]:
    """Seconds until it has said where each partition begins, and its memory then."""
    began = time.perf_counter()
    broker.start()
    ready = time.perf_counter() - began
    with closing(Wire(broker.bootstrap)) as wire:
        topic = RemoteTopic(wire, TOPIC)
        for partition in range(SEGMENT_PARTITIONS):
            while topic.offset(EARLIEST, partition) < 0:
                time.sleep(0.005)
    return {"ready_s": ready, "seconds": time.perf_counter() - began, "resident_mb": cost(broker.pid).resident_mb}


def segments(gigabytes: float, rounds: int) -> dict[str, float]:
    with (
        tempfile.TemporaryDirectory() as name,
        object_store("folder", Path(name)) as (url, _),
        tiered_ottla(Path(name), url=url, overrides=EVERY_SECOND) as broker,
    ):
        create_topic(broker, TOPIC, SEGMENT_PARTITIONS, TIERED)
        with closing(Wire(broker.bootstrap)) as wire:
            cluster_id = wire.call(DescribeClusterRequest(), 0).cluster_id
            topic_id = wire.call(MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]), 12).topics[0].topic_id
        broker.stop()
        runs = []
        for _ in range(rounds):
            runs.append((started(broker), broker.stop()))
        names = TopicNames(cluster_id, TOPIC, topic_id)
        for partition in range(SEGMENT_PARTITIONS):
            path = Path(name) / "remote" / names.manifest(partition)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(manifest_of(topic_id, partition).to_bytes())
        full = []
        for _ in range(rounds):
            full.append((started(broker), broker.stop()))
    empty_, full_ = ([run for run, _ in each] for each in (runs, full))
    return {
        f"{figure}{when}": statistics.median(run[figure] for run in each)
        for when, each in (("_empty", empty_), ("", full_))
        for figure in each[0]
    }


def manifest_of(topic_id: UUID, partition: int) -> Manifest:
    """Segments of 1,000 records each, of which nothing but the manifest is there."""
    manifest = Manifest(topic_id, partition)
    now_ms = time.time_ns() // 1_000_000
    for number in range(SEGMENTS // SEGMENT_PARTITIONS):
        base = number * 1000
        segment = RemoteSegment(UploadId(0, uuid4()), base, base + 999, now_ms, now_ms, 1_000_000, 0, 500, 0)
        manifest = manifest.with_segment(segment, [EpochEntry(0, 0)] if not number else [], 0, after=-1)
    return manifest


def memory(gigabytes: float, rounds: int) -> dict[str, float]:
    """CPU seconds for a GB that is copied into parts of new memory, and again and again into one."""
    part = bytes(PART_BYTES)
    filled = [bytearray(PART_BYTES)]
    found = {}
    for name in ("new_s_per_gb", "again_s_per_gb"):
        began = time.process_time()
        for _ in range(PARTS):
            if name.startswith("new"):
                filled.append(bytearray(PART_BYTES))
            memoryview(filled[-1])[:] = part
        found[name] = (time.process_time() - began) / (PARTS * PART_BYTES) * 1e9
    return found


def disk(gigabytes: float, rounds: int) -> dict[str, float]:
    """CPU seconds for a GB that is written, synced and read back in parts, as a copy to a folder does at the least."""
    part = memoryview(bytearray(os.urandom(PART_BYTES)))
    found: dict[str, list[float]] = {"written_s_per_gb": [], "read_s_per_gb": []}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(prefix="ottla-tiers-") as folder:
            paths = [Path(folder) / str(number) for number in range(max(1, int(gigabytes * 1e9) // PART_BYTES))]
            began = time.process_time()
            for path in paths:
                with path.open("wb", buffering=0) as file:
                    file.write(part)
                    os.fsync(file.fileno())
            written = time.process_time()
            for path in paths:
                with path.open("rb", buffering=0) as file:
                    file.readinto(part)
            size_bytes = len(paths) * PART_BYTES
            found["written_s_per_gb"].append((written - began) / size_bytes * 1e9)
            found["read_s_per_gb"].append((time.process_time() - written) / size_bytes * 1e9)
    return {
        f"{figure}_{name}": value
        for figure, values in found.items()
        for name, value in (("least", min(values)), ("most", max(values)))
    }


MEASURES: Final[dict[str, Callable[[float, int], dict[str, float]]]] = {
    "copy": copy,
    "read": read,
    "first": first,
    "segments": segments,
    "memory": memory,
    "disk": disk,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=MEASURES, default=list(MEASURES))
    parser.add_argument("--gigabytes", type=float, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    for name in arguments.only:
        found = MEASURES[name](arguments.gigabytes, arguments.rounds)
        print(json.dumps({name: {figure: round(value, 3) for figure, value in found.items()}}), flush=True)


if __name__ == "__main__":
    main()
