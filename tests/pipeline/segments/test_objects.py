"""Scans of tiered topics in an object store, without a broker."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
import trio

from ottla.kproto.records import EndTxnMarker, Record, build_batch, build_end_txn_marker
from ottla.pipeline.errors import DataLossError, OptionError, StoreError, TopicError
from ottla.pipeline.segments.objects.place import Place
from ottla.pipeline.segments.options import parse_segment_options
from ottla.pipeline.segments.source import SegmentsReader
from ottla.pipeline.source.ranges import OffsetRange
from ottla.storage.state.aborted_transactions import AbortedTransaction
from ottla.tiers.address import open_object_store
from ottla.tiers.errors import ObjectStoreUnavailableError
from ottla.tiers.manifest import Manifest
from ottla.tiers.names import TopicNames
from ottla.tiers.object_store import ObjectStore
from ottla.tiers.stores.folder_store import FolderObjectStore
from ottla.tiers.stores.memory_store import MemoryObjectStore
from tests.tiers.faults import FaultyObjectStore
from tests.tiers.logs import FIRST_TIME_MS, LogSource, batch
from tests.tiers.s3 import BUCKET, config_of, s3_server
from tests.tiers.tier import NAMES, TOPIC_ID, Tier

Offsets = list[int]


def fill(store: ObjectStore, *sources: Sequence[LogSource], tier: Tier | None = None) -> Tier:
    """Copy each group of stretches in an upload of its own."""
    tier = Tier(store) if tier is None else tier

    async def copy() -> None:
        for group in sources:
            for found in (await tier.copy(group)).values():
                assert isinstance(found, Manifest), found

    trio.run(copy)
    return tier


def stretch(partition: int, first: int, end: int) -> LogSource:
    """Batches of three records, whose times are in step with their offsets."""
    return LogSource(partition, [batch(offset) for offset in range(first, end, 3)], base_offset=first)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two partitions, of which the first has three segments."""
    fill(open_object_store(f"file://{tmp_path}", timeout_seconds=10), [stretch(0, 0, 60), stretch(1, 0, 30)])
    fill_more(tmp_path)
    return tmp_path


def fill_more(path: Path) -> None:
    tier = Tier(open_object_store(f"file://{path}", timeout_seconds=10), first_number=100)
    fill(tier.store, [stretch(0, 60, 90)], [stretch(0, 90, 150)], tier=tier)


def reader_of(url: object, **options: object) -> SegmentsReader:
    given = {} if "assign" in options else {"subscribe": "trips"}
    given |= {name.replace("__", "."): str(value) for name, value in options.items()}
    return SegmentsReader(parse_segment_options(given | {"path": str(url)}))


def rows(reader: SegmentsReader) -> list[dict[str, Any]]:
    """What executors read, to whom everything is sent."""
    tasks = reader.partitions()
    there = pickle.loads(pickle.dumps((reader, tasks)))
    return [row for task in there[1] for found in there[0].read(task) for row in found.to_pylist()]


def ranges_of(reader: SegmentsReader) -> list[OffsetRange]:
    """What its tasks read."""
    tasks: list[Any] = reader.partitions()
    return [task.scan.range for task in tasks]


def scan(url: object, **options: object) -> dict[int, Offsets]:
    """The offsets by partition."""
    found: dict[int, Offsets] = {}
    for row in rows(reader_of(url, **options)):
        found.setdefault(row["partition"], []).append(row["offset"])
    return found


def test_everything_is_read_that_was_copied(folder: Path) -> None:
    found = rows(reader_of(f"file://{folder}"))

    assert [(row["topic"], row["partition"], row["offset"]) for row in found] == [
        ("trips", 0, offset) for offset in range(150)
    ] + [("trips", 1, offset) for offset in range(30)]
    assert found[100]["key"] == b"100"
    assert found[100]["value"] == b"v" * 100
    assert found[100]["timestamp"].timestamp() * 1000 == FIRST_TIME_MS + 100


@pytest.mark.parametrize("size_bytes", [400, 2000, 8000])
def test_tasks_share_it_without_a_gap(folder: Path, size_bytes: int) -> None:
    reader = reader_of(f"file://{folder}", maxPartitionBytes=size_bytes)
    ranges = [each for each in ranges_of(reader) if each.partition.partition == 0]

    assert len(ranges) >= min(150, 15_000 // size_bytes)
    assert [each.end for each in ranges] == [each.start for each in ranges[1:]] + [150]
    assert scan(f"file://{folder}", maxPartitionBytes=size_bytes) == {0: list(range(150)), 1: list(range(30))}


@pytest.mark.parametrize(
    ("options", "first", "end"),
    [
        ({"startingOffsets": '{"trips":{"0":71}}'}, 71, 150),
        ({"endingOffsets": '{"trips":{"0":88}}'}, 0, 88),
        ({"startingOffsets": '{"trips":{"0":-2}}', "endingOffsets": '{"trips":{"0":-1}}'}, 0, 150),
        ({"startingTimestamp": FIRST_TIME_MS + 61}, 61, 150),
        ({"endingTimestamp": FIRST_TIME_MS + 61}, 0, 61),
        ({"startingTimestamp": FIRST_TIME_MS + 59, "endingTimestamp": FIRST_TIME_MS + 91}, 59, 91),
        ({"endingTimestamp": FIRST_TIME_MS + 5000}, 0, 150),
        ({"startingOffsetsByTimestamp": f'{{"trips":{{"0":{FIRST_TIME_MS + 149}}}}}'}, 149, 150),
    ],
)
def test_reads_from_where_to_where_it_is_told(folder: Path, options: dict[str, object], first: int, end: int) -> None:
    assert scan(f"file://{folder}", assign='{"trips":[0]}', **options) == {0: list(range(first, end))}


def test_a_time_after_all_records(folder: Path) -> None:
    late = {"startingTimestamp": FIRST_TIME_MS + 5000}

    with pytest.raises(OptionError, match="has no record at or after"):
        scan(f"file://{folder}", **late)
    assert scan(f"file://{folder}", **late, startingOffsetsByTimestampStrategy="latest") == {}


def transactions(offset: int, producer: int, *, is_commit: bool) -> list[bytes]:
    """Two batches of two records, and their marker."""
    made = [
        build_batch(
            [Record(first, FIRST_TIME_MS + first, None, b"%d" % first), Record(-1, FIRST_TIME_MS + first, None, b"")],
            base_offset=first,
            leader_epoch=1,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=first,
            is_transactional=True,
        )
        for first in (offset, offset + 2)
    ]
    marker = EndTxnMarker(producer, 0, 0, is_commit)
    return [*made, build_end_txn_marker(marker, base_offset=offset + 4, timestamp_ms=FIRST_TIME_MS, leader_epoch=1)]


@pytest.mark.parametrize("size_bytes", [300, 1 << 20])
def test_aborted_transactions_are_left_out(tmp_path: Path, size_bytes: int) -> None:
    batches = [each for n in range(20) for each in transactions(5 * n, 7, is_commit=n % 3 > 0)]
    aborted = [AbortedTransaction(7, 5 * n, 5 * n + 4, 5 * n + 5) for n in range(0, 20, 3)]
    source = LogSource(0, batches, aborted=aborted)
    fill(open_object_store(f"file://{tmp_path}", timeout_seconds=10), [source])
    everything = [offset for offset in range(100) if offset % 5 < 4]

    committed = scan(f"file://{tmp_path}", maxPartitionBytes=size_bytes)
    uncommitted = scan(f"file://{tmp_path}", maxPartitionBytes=size_bytes, kafka__isolation__level="read_uncommitted")

    assert committed == {0: [offset for offset in everything if offset // 5 % 3 > 0]}
    assert uncommitted == {0: everything}


def test_it_begins_where_the_log_begins(folder: Path) -> None:
    tier = Tier(open_object_store(f"file://{folder}", timeout_seconds=10))
    trio.run(tier.file(0).change, lambda manifest: manifest.with_log_start(64, 1))

    assert scan(f"file://{folder}")[0] == list(range(64, 150))
    with pytest.raises(DataLossError, match="begins at offset 64, but 3 is where the read starts"):
        scan(f"file://{folder}", startingOffsets='{"trips":{"0":3,"1":0}}')


@pytest.mark.parametrize("suffix", [".index", ".000000"])
def test_damage_is_a_sentence(folder: Path, suffix: str) -> None:
    for path in folder.rglob(f"segments/*{suffix}"):
        content = bytearray(path.read_bytes())
        content[70] ^= 1
        path.write_bytes(content)

    with pytest.raises(StoreError, match=r"cannot be read: .* is not what was uploaded"):
        scan(f"file://{folder}")


def test_what_a_broker_removes_meanwhile_is_a_sentence(folder: Path) -> None:
    reader = reader_of(f"file://{folder}")
    tasks = reader.partitions()
    for path in folder.rglob("segments/*.000000"):
        path.unlink()

    with pytest.raises(StoreError, match=r"removed it since the read was planned.*run the query again"):
        list(reader.read(tasks[0]))


def test_a_reader_may_stop_early(folder: Path) -> None:
    reader = reader_of(f"file://{folder}")
    found: Any = reader.read(reader.partitions()[0])

    assert next(found).num_rows
    found.close()


def test_which_topic_is_meant_must_be_said(folder: Path) -> None:
    store = open_object_store(f"file://{folder}", timeout_seconds=10)
    url, manifest = f"file://{folder}", (folder / NAMES.manifest(1)).read_bytes()
    again = TopicNames("cluster", "trips", UUID(int=8))
    trio.run(store.put, again.manifest(1), manifest)
    with pytest.raises(StoreError, match=r"several topics named 'trips'.*set topicId to one of A+Bw, A+CA\."):
        scan(url)
    assert len(scan(url, topicId="AAAAAAAAAAAAAAAAAAAABw")) == 2

    trio.run(store.put, again.deletion_note, b"")
    assert len(scan(url)) == 2

    other = TopicNames("other", "trips", TOPIC_ID)
    trio.run(store.put, other.manifest(1), manifest)
    with pytest.raises(StoreError, match="topic 'trips' of several clusters: set clusterId to one of cluster, other"):
        scan(url)
    assert len(scan(url, clusterId="cluster")) == 2


def test_topics_and_partitions_that_are_not_there(folder: Path) -> None:
    with pytest.raises(TopicError, match="no topic 'trip' in file://"):
        scan(f"file://{folder}", subscribe="trip")
    with pytest.raises(TopicError, match=r"matches subscribePattern 'x\.\*'"):
        SegmentsReader(parse_segment_options({"path": f"file://{folder}", "subscribePattern": "x.*"})).partitions()
    with pytest.raises(TopicError, match="nothing of partition trips-5"):
        SegmentsReader(parse_segment_options({"path": f"file://{folder}", "assign": '{"trips":[0,5]}'})).partitions()
    for path in (folder / NAMES.folder / "manifests").iterdir():
        path.rename(folder / path.name)
    with pytest.raises(TopicError, match="objects of topic 'trips', but no manifest yet that names any"):
        scan(f"file://{folder}")


def test_a_pattern_of_topics(folder: Path) -> None:
    found = SegmentsReader(parse_segment_options({"path": f"file://{folder}", "subscribePattern": "tr.*"}))
    assert len(rows(found)) == 180


@pytest.mark.parametrize("wrong", ["s4://bucket/x", "s3://key:secret@bucket", "file://host/path", "hdfs://host/x"])
def test_addresses_that_are_none(wrong: str) -> None:
    with pytest.raises(OptionError, match="no address of an object store: ") as caught:
        reader_of(wrong).partitions()
    assert "secret" not in str(caught.value)


def test_a_cloud_needs_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "ottla.tiers.stores.cloud_store", raising=False)
    monkeypatch.setitem(sys.modules, "obstore", None)

    with pytest.raises(ModuleNotFoundError, match=r"obstore is not installed: pip install 'ottla\[tiers\]' brings it"):
        reader_of("s3://bucket/prefix").partitions()


def test_settings_that_a_cloud_does_not_have() -> None:
    pytest.importorskip("obstore")
    with pytest.raises(StoreError, match="s3://bucket cannot be opened"):
        reader_of("s3://bucket", store__colour="red").partitions()


def test_options_of_object_stores_are_not_for_data_folders(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"Option store\.region is for object stores"):
        reader_of(tmp_path, store__region="r").partitions()


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> FaultyObjectStore:
    """A store in memory with the same segments."""
    store = FaultyObjectStore(MemoryObjectStore(lambda: 1))
    tier = fill(store, [stretch(0, 0, 60), stretch(1, 0, 30)])
    fill(store, [stretch(0, 60, 90)], [stretch(0, 90, 150)], tier=tier)
    monkeypatch.setattr(Place, "open", lambda place: store)
    store.requests.clear()
    return store


def test_planning_asks_for_manifests_only(counted: FaultyObjectStore) -> None:
    reader = SegmentsReader(parse_segment_options({"path": "s3://bucket", "subscribe": "trips"}))

    tasks = reader.partitions()

    assert [name for method, name in counted.requests if method == "get"] == [
        NAMES.deletion_note,
        NAMES.manifest(0),
        NAMES.manifest(1),
    ]
    assert "get_range" not in dict(counted.requests)
    assert len(pickle.dumps(tasks)) < 10_000


def test_segments_before_a_time_are_not_asked_for(counted: FaultyObjectStore) -> None:
    reader = SegmentsReader(
        parse_segment_options(
            {"path": "s3://bucket", "assign": '{"trips":[0]}', "startingTimestamp": str(FIRST_TIME_MS + 95)}
        )
    )

    assert [row["offset"] for task in reader.partitions() for it in reader.read(task) for row in it.to_pylist()] == [
        *range(95, 150)
    ]
    asked = {name.rpartition(".")[0] for method, name in counted.requests if method == "get_range"}
    assert len(asked) == 1


def test_a_failure_that_passes_is_waited_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer, asked = FolderObjectStore.get_range, []

    async def every_other(store: FolderObjectStore, name: str, start: int, length: int) -> Any:
        asked.append(name)
        if len(asked) % 2:
            raise ObjectStoreUnavailableError("503 Slow Down")
        return await answer(store, name, start, length)

    monkeypatch.setattr(FolderObjectStore, "get_range", every_other)

    assert scan(f"file://{folder}", startingOffsets='{"trips":{"0":100,"1":0}}')[0] == list(range(100, 150))
    assert len(asked) > 2


def test_on_a_server_with_the_interface_of_s3() -> None:
    pytest.importorskip("obstore")
    pytest.importorskip("moto")
    with s3_server() as endpoint:
        url, config = f"s3://{BUCKET}/{uuid4()}", config_of(endpoint)
        fill(open_object_store(url, timeout_seconds=10, config=config), [stretch(0, 0, 60), stretch(1, 0, 30)])
        given = {f"store__{name}": text for name, text in config.items()}

        assert scan(url, **given) == {0: list(range(60)), 1: list(range(30))}
