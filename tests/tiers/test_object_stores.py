"""What every object store has to do: in memory, in a folder, and on a server with the interface of S3."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
import trio
import trio.testing

from ottla.tiers.address import check_remote_url, open_object_store
from ottla.tiers.errors import (
    ObjectMissingError,
    ObjectStoreRefusedError,
    ObjectStoreUnavailableError,
    PreconditionFailedError,
)
from ottla.tiers.object_store import ABSENT, ObjectStore
from ottla.tiers.patient_store import PatientObjectStore
from ottla.tiers.stores import folder_store
from ottla.tiers.stores.folder_store import FolderObjectStore
from ottla.tiers.stores.memory_store import MemoryObjectStore
from tests.tiers.faults import FaultyObjectStore
from tests.tiers.s3 import BUCKET, config_of, s3_server


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    pytest.importorskip("obstore")
    pytest.importorskip("moto")
    with s3_server() as endpoint:
        yield endpoint


@pytest.fixture(params=["memory", "folder", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "memory":
        return MemoryObjectStore(lambda: 1)
    if request.param == "folder":
        return open_object_store(f"file://{tmp_path}", timeout_seconds=10)
    config = config_of(request.getfixturevalue("s3"))
    return open_object_store(f"s3://{BUCKET}/{uuid4()}", timeout_seconds=10, config=config)


async def names_below(store: ObjectStore, prefix: str) -> list[str]:
    found: list[str] = []
    while page := await store.find(prefix, found[-1] if found else ""):
        found += [info.name for info in page]
    return found


async def test_an_object_is_what_was_written(store: ObjectStore) -> None:
    await store.put("a/b/one", b"0123456789")
    assert (await store.get("a/b/one")).content == b"0123456789"
    assert await store.get_range("a/b/one", 3, 4) == b"3456"
    assert await store.get_range("a/b/one", 8, 10) == b"89"
    # As of an object that was cut: there is less than there should be, and no reason to ask again.
    assert await store.get_range("a/b/one", 10, 5) == b""
    assert await store.get_range("a/b/one", 20, 5) == b""
    await store.put("a/b/one", b"other")
    assert (await store.get("a/b/one")).content == b"other"


async def test_what_is_not_there_is_missing(store: ObjectStore) -> None:
    await store.put("a/one", b"1")
    with pytest.raises(ObjectMissingError):
        await store.get("a/two")
    with pytest.raises(ObjectMissingError):
        await store.get_range("a/two", 0, 1)
    with pytest.raises(ObjectMissingError):
        await store.get_if_changed("a/two", "1")


async def test_a_conditional_write_is_made_of_one_version_only(store: ObjectStore) -> None:
    first = await store.put_if("m", b"first", ABSENT)
    with pytest.raises(PreconditionFailedError):
        await store.put_if("m", b"also first", ABSENT)
    assert (await store.get("m")) == (b"first", first)
    second = await store.put_if("m", b"second", first)
    with pytest.raises(PreconditionFailedError):
        await store.put_if("m", b"also second", first)
    assert (await store.get("m")) == (b"second", second)
    with pytest.raises(PreconditionFailedError):
        await store.put_if("other", b"second", first)


async def test_of_many_writers_one_wins(store: ObjectStore) -> None:
    version = await store.put_if("m", b"none", ABSENT)
    won: list[int] = []

    async def write(number: int) -> None:
        try:
            await store.put_if("m", b"%d" % number, version)
        except PreconditionFailedError:
            return
        won.append(number)

    async with trio.open_nursery() as nursery:
        for number in range(8):
            nursery.start_soon(write, number)
    assert [b"%d" % number for number in won] == [(await store.get("m")).content]


async def test_what_has_not_changed_is_not_sent(store: ObjectStore) -> None:
    version = await store.put_if("m", b"first", ABSENT)
    assert await store.get_if_changed("m", version) is None
    await store.put_if("m", b"second", version)
    found = await store.get_if_changed("m", version)
    assert found is not None
    assert found.content == b"second"


async def test_objects_are_found_in_the_order_of_their_names(store: ObjectStore) -> None:
    names = ["a-b/1", "a.b", "a/b-c", "a/b/1", "a/b/2", "a/b0", "a0/1", "b"]
    for name in reversed(names):
        await store.put(name, b"1")
    for place in range(len(names)):
        assert [info.name for info in await store.find("", names[place])] == names[place + 1 :]
    # After all of a folder, as who looks for the next one asks.
    assert [info.name for info in await store.find("a/", "a/b/~")] == ["a/b0"]
    assert [info.name for info in await store.find("", "a/~")] == ["a0/1", "b"]


async def test_a_link_to_a_folder_leads_nowhere(tmp_path: Path) -> None:
    store = open_object_store(f"file://{tmp_path}", timeout_seconds=10)
    await store.put("a/1", b"1")
    (tmp_path / "a" / "again").symlink_to(tmp_path)
    assert await names_below(store, "") == ["a/1"]


async def test_objects_are_found_and_removed(store: ObjectStore) -> None:
    names = [f"t/segments/{number:04d}" for number in range(1100)] if isinstance(store, MemoryObjectStore) else []
    names += [f"t/segments/x{number}" for number in range(5)]
    for name in [*names, "t/other/1", "t/segments-of-others"]:
        await store.put(name, b"12")
    assert await names_below(store, "t/segments/") == sorted(names)
    assert [info.size_bytes for info in await store.find("t/other/")] == [2]
    assert [info.name for info in await store.find("t/segments/", "t/segments/x2")] == [
        "t/segments/x3",
        "t/segments/x4",
    ]
    assert await names_below(store, "") == sorted([*names, "t/other/1", "t/segments-of-others"])
    assert await store.modified_ms("t/other/1") == (await store.find("t/other/"))[0].modified_ms
    await store.delete([names[0], "t/segments/not-there", names[1]])
    assert await names_below(store, "t/segments/") == sorted(names[2:])
    assert await names_below(store, "nothing/") == []
    await store.delete(["t/segments/not-there"])


async def test_a_folder_that_is_not_mounted_is_no_empty_store(tmp_path: Path) -> None:
    store = open_object_store(f"file://{tmp_path}/gone", timeout_seconds=10)
    with pytest.raises(ObjectStoreUnavailableError):
        await names_below(store, "a/")
    with pytest.raises(ObjectStoreUnavailableError):
        await store.put("a/b", b"1")
    with pytest.raises(ObjectStoreUnavailableError):
        await store.put_if("a/b", b"1", ABSENT)
    assert not (tmp_path / "gone").exists()


@pytest.mark.parametrize("name", ["../a", "a/../../b", ".hidden", "a//b", "", "/a"])
async def test_no_name_leads_out_of_the_folder(tmp_path: Path, name: str) -> None:
    store = open_object_store(f"file://{tmp_path}", timeout_seconds=10)
    with pytest.raises(ObjectStoreRefusedError):
        await store.put(name, b"1")


async def test_a_server_that_is_not_there_is_not_available() -> None:
    pytest.importorskip("obstore")
    store = open_object_store("s3://bucket/a", timeout_seconds=10, config=config_of("http://127.0.0.1:1"))
    with pytest.raises(ObjectStoreUnavailableError):
        await store.get("a")


def test_a_version_is_named_as_each_cloud_wants_it() -> None:
    cloud = pytest.importorskip("ottla.tiers.stores.cloud_store", exc_type=ImportError)
    assert cloud.update_of(cloud.version_of("m", '"5d41"', None)) == {"e_tag": '"5d41"'}
    # Google's store compares generations.
    assert cloud.update_of(cloud.version_of("m", '"5d41"', "17000")) == {"e_tag": '"5d41"', "version": "17000"}
    with pytest.raises(ObjectStoreRefusedError):
        cloud.version_of("m", None, "17000")


async def test_a_bucket_that_is_not_there_takes_nothing(s3: str) -> None:
    store = open_object_store("s3://other-bucket/a", timeout_seconds=10, config=config_of(s3))
    with pytest.raises(ObjectStoreRefusedError):
        await store.put("a", b"1")


@pytest.mark.parametrize(
    "url",
    ["", "trips", "http://host/a", "s3://", "s3://bucket?x=1", "s3://key:secret@bucket", "file://host/a", "file:///"],
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"address|folder|must be"):
        check_remote_url(url)


@pytest.mark.parametrize("url", ["s3://bucket", "gs://bucket/a", "az://container/a/b", "file:///srv/tier"])
def test_addresses(url: str) -> None:
    check_remote_url(url)


async def test_what_could_not_be_answered_is_asked_again(autojump_clock: trio.testing.MockClock) -> None:
    faulty = FaultyObjectStore(MemoryObjectStore(lambda: 1))
    store = PatientObjectStore(faulty, timeout_seconds=10, attempts=3)
    await store.put("a", b"1")
    faulty.fail_next("get", 2)
    assert (await store.get("a")).content == b"1"
    faulty.fail_next("get", 3)
    with pytest.raises(ObjectStoreUnavailableError):
        await store.get("a")
    assert store.failures == 5


async def test_a_conditional_write_is_not_repeated_blindly(autojump_clock: trio.testing.MockClock) -> None:
    faulty = FaultyObjectStore(MemoryObjectStore(lambda: 1))
    store = PatientObjectStore(faulty, timeout_seconds=10, attempts=3)
    faulty.fail_next("put_if", is_done=True)
    with pytest.raises(ObjectStoreUnavailableError):
        await store.put_if("a", b"1", ABSENT)
    assert [method for method, _ in faulty.requests] == ["put_if"]
    assert (await store.get("a")).content == b"1"


async def test_no_answer_is_waited_for_without_end(autojump_clock: trio.testing.MockClock) -> None:
    faulty = FaultyObjectStore(MemoryObjectStore(lambda: 1))
    faulty.pauses = lambda name: 3600.0
    store = PatientObjectStore(faulty, timeout_seconds=10, attempts=2)
    with pytest.raises(ObjectStoreUnavailableError):
        await store.get("a")
    assert trio.current_time() < 60


async def test_the_environment_says_where_s3_is(s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a broker finds it: without TLS if the address has none."""
    environment = {
        "AWS_ENDPOINT_URL": s3,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    store = open_object_store(f"s3://{BUCKET}/found", timeout_seconds=20)
    await store.put("a", b"content")
    assert (await store.get("a")).content == b"content"


async def test_a_folder_hashes_nothing_on_the_event_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = []

    def seen(content: bytes) -> str:
        threads.append(threading.get_ident())
        return version_of_content(content)

    version_of_content = folder_store._version
    monkeypatch.setattr(folder_store, "_version", seen)
    store = FolderObjectStore(tmp_path)
    version = await store.put_if("a/b", b"1" * 1_000_000, ABSENT)
    assert (await store.get("a/b")).version == version
    assert await store.get_if_changed("a/b", version) is None
    assert len(threads) >= 3
    assert threading.get_ident() not in threads


async def test_a_folder_tells_versions_apart_wherever_they_differ(tmp_path: Path) -> None:
    store = FolderObjectStore(tmp_path)
    content = bytearray(1_000_000)
    versions = {await store.put_if("o", content, ABSENT)}
    for position in (0, 100_000, 500_000, 999_999):
        content[position] = 1
        await store.put("o", bytes(content))
        versions.add((await store.get("o")).version)
    assert len(versions) == 5
