"""The metadata store in etcd where it is etcd's: its limits, its leader, its failures."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from base64 import b64encode
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
import trio

from ottla.metadata.changes.topic_changes import NewTopic
from ottla.metadata.controller import Controller
from ottla.metadata.errors import TopicAlreadyExistsError
from ottla.metadata.image import BrokerImage, Endpoint, TopicImage
from ottla.metastore import etcd_watch
from ottla.metastore.address import parse_metadata_address
from ottla.metastore.errors import (
    LeaseExpiredError,
    MetadataDamagedError,
    PolicyViolationError,
    StoreUnavailableError,
    WatchLaggedError,
)
from ottla.metastore.etcd import EtcdMetadataStore, open_etcd_store
from ottla.metastore.etcd_client import EtcdAccess
from ottla.metastore.etcd_encoding import decode_value, encode_value
from ottla.metastore.store import Change, Compare, Delete, DeletePrefix, Operation, Put, Watch
from ottla.settings.config import BrokerConfig
from tests.etcd import Etcd, needs_etcd

pytestmark = needs_etcd


@pytest.fixture(scope="module")
def shared_etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    etcd = Etcd(tmp_path_factory.mktemp("etcd"))
    etcd.start()
    yield etcd
    etcd.close()


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[Etcd]:
    """One of the test's own, to be stopped."""
    etcd = Etcd(tmp_path / "etcd")
    etcd.start()
    yield etcd
    etcd.close()


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Etcd]:
    etcd = Etcd(tmp_path / "etcd", members=3)
    etcd.start()
    yield etcd
    etcd.close()


async def _open(text: str, access: EtcdAccess | None = None) -> EtcdMetadataStore:
    address = parse_metadata_address(text)
    assert address is not None
    return await open_etcd_store(address, access or EtcdAccess())


@pytest.fixture
async def store(shared_etcd: Etcd) -> AsyncIterator[EtcdMetadataStore]:
    store = await _open(f"etcd://{shared_etcd.hosts}/{uuid4().hex}")
    yield store
    await store.close()


def _ask(etcd: Etcd, path: str, document: dict[str, Any]) -> dict[str, Any]:
    response = httpx.post(f"http://127.0.0.1:{etcd.clients[0]}{path}", json=document, timeout=120)
    response.raise_for_status()
    answer: dict[str, Any] = response.json()
    return answer


async def _receive(watch: Watch) -> Change:
    with trio.fail_after(30):
        return await watch.receive()


class TestLimits:
    async def test_thousands_of_operations_are_one_transaction(self, store: EtcdMetadataStore) -> None:
        puts: list[Operation] = [Put(f"/t/{number:05}", b"%d" % number) for number in range(5_000)]
        compares = [Compare(put.key, 0) for put in puts if isinstance(put, Put)]
        async with store.watch("/t/", (await store.list("")).revision) as watch:
            revision = await store.commit(compares, puts)
            change = await _receive(watch)
        assert change.revision == revision
        assert [entry.key for entry in change.puts] == [compare.key for compare in compares]
        listing = await store.list("/t/")
        assert [entry.value for entry in listing.entries] == [b"%d" % number for number in range(5_000)]
        assert {entry.mod_revision for entry in listing.entries} == {revision}

    async def test_one_of_many_comparisons_that_fails_changes_nothing(self, store: EtcdMetadataStore) -> None:
        assert await store.commit([], [Put("/t/0700", b"there")]) is not None
        compares = [Compare(f"/t/{number:04}", 0) for number in range(1_000)]
        assert await store.commit(compares, [Put(compare.key, b"") for compare in compares]) is None
        assert await store.commit(compares, [Put("/other", b"")]) is None
        assert [entry.key for entry in (await store.list("")).entries] == ["/t/0700"]

    async def test_many_comparisons_hold_until_the_transaction(
        self, store: EtcdMetadataStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Somebody changes a key between the comparison, which is made here, and the transaction."""
        compares = [Compare(f"/t/{number:04}", 0) for number in range(300)]
        compare = EtcdMetadataStore._compare
        interfered = False

        async def compare_and_be_late(self: EtcdMetadataStore, asked: list[Compare]) -> Any:
            nonlocal interfered
            result = await compare(self, asked)
            if not interfered:
                interfered = True
                await self.commit([], [Put("/t/0200", b"mine")])
            return result

        monkeypatch.setattr(EtcdMetadataStore, "_compare", compare_and_be_late)
        assert await store.commit(compares, [Put("/done", b"")]) is None
        assert [entry.key for entry in (await store.list("")).entries] == ["/t/0200"]

    async def test_the_end_of_a_lease_fails_one_of_many_comparisons(
        self, store: EtcdMetadataStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        lease = await store.grant_lease(60_000)
        revision = await store.commit([], [Put("/alive/1", b"", lease)])
        assert revision is not None
        compares = [Compare("/alive/1", revision), *(Compare(f"/t/{number}", 0) for number in range(300))]
        compare = EtcdMetadataStore._compare

        async def compare_and_be_late(self: EtcdMetadataStore, asked: list[Compare]) -> Any:
            result = await compare(self, asked)
            await self.revoke_lease(lease)
            return result

        monkeypatch.setattr(EtcdMetadataStore, "_compare", compare_and_be_late)
        assert await store.commit(compares, [Put("/done", b"")]) is None
        assert await store.get("/done") is None

    async def test_many_deletions_with_their_prefixes(self, store: EtcdMetadataStore) -> None:
        await store.commit([], [Put(f"/{kind}/{number}/x", b"") for kind in "tp" for number in range(300)])
        operations: list[Operation] = []
        for number in range(300):
            operations += [Delete(f"/t/{number}/x"), DeletePrefix(f"/p/{number}/")]
        assert await store.commit([], operations) is not None
        assert (await store.list("")).entries == ()

    async def test_a_listing_of_many_pages_is_of_one_revision(self, store: EtcdMetadataStore) -> None:
        await store.commit([], [Put(f"/k/{number:05}", b"") for number in range(2_500)])
        listing = await store.list("/k/")
        assert [entry.key for entry in listing.entries] == [f"/k/{number:05}" for number in range(2_500)]

    async def test_a_value_beyond_what_etcd_takes_is_compressed(self, store: EtcdMetadataStore) -> None:
        value = json.dumps({"replicas": [[n % 7, (n + 1) % 7, (n + 2) % 7] for n in range(300_000)]}).encode()
        assert len(value) > 3_000_000
        async with store.watch("/topics/", (await store.list("")).revision) as watch:
            await store.commit([], [Put("/topics/large", value)])
            assert (await _receive(watch)).puts[0].value == value
        entry = await store.get("/topics/large")
        assert entry is not None
        assert entry.value == value

    async def test_what_stays_too_large_is_refused_in_a_sentence_and_changes_nothing(
        self, store: EtcdMetadataStore
    ) -> None:
        for size in (1_700_000, 3_000_000):
            value = random.Random(1).randbytes(size)
            with pytest.raises(PolicyViolationError, match="larger than etcd accepts at once"):
                await store.commit([], [Put("/small", b""), Put("/large", value)])
        assert (await store.list("")).entries == ()

    @pytest.mark.parametrize("value", [b"", b"\x00", b"\x00p", b"\x00z", b"{}", b"a" * 4096, b"\x00" * 5000])
    def test_every_value_comes_back(self, value: bytes) -> None:
        assert decode_value(encode_value(value)) == value

    def test_damaged_values_are_refused(self) -> None:
        packed = encode_value(b"a" * 10_000)
        for damaged in (packed[:-1], packed[:5] + b"x" + packed[6:], b"\x00z"):
            with pytest.raises(StoreUnavailableError, match="damaged"):
                decode_value(damaged)


class TestController:
    async def test_topics_by_the_thousand_and_partitions_by_ten_thousand(
        self, store: EtcdMetadataStore, nursery: trio.Nursery
    ) -> None:
        controller = Controller(store, BrokerConfig(), node_id=1)
        await nursery.start(controller.run)
        lease = await store.grant_lease(60_000)
        broker = BrokerImage(1, (Endpoint("PLAINTEXT", "127.0.0.1", 9092),), incarnation="i", directory_id="d")
        await controller.register_broker(broker, lease)
        assert len((await controller.create_topic(NewTopic("wide", 10_000, 1))).partitions) == 10_000
        results = await controller.create_topics([NewTopic(f"t{number}", 1, 1) for number in range(2_000)])
        assert all(isinstance(result, TopicImage) for result in results.values())
        with pytest.raises(TopicAlreadyExistsError):
            await controller.create_topic(NewTopic("wide", 1, 1))
        ids = [topic.topic_id for topic in controller.image.topics.values()]
        assert set((await controller.delete_topics(ids)).values()) == {None}
        assert len(controller.image.topics) == 0
        nursery.cancel_scope.cancel()


class TestWatch:
    async def test_a_compacted_revision_is_listed_again(self, shared_etcd: Etcd, store: EtcdMetadataStore) -> None:
        before = (await store.list("")).revision
        for number in range(3):
            last = await store.commit([], [Put("/a", b"%d" % number)])
        _ask(shared_etcd, "/v3/kv/compaction", {"revision": str(last)})
        async with store.watch("", before) as watch:
            with pytest.raises(WatchLaggedError):
                await _receive(watch)
        async with store.watch("", (await store.list("")).revision) as watch:
            await store.commit([], [Put("/b", b"")])
            assert (await _receive(watch)).puts[0].key == "/b"

    async def test_others_who_use_the_etcd_do_not_matter(self, shared_etcd: Etcd, store: EtcdMetadataStore) -> None:
        committed = await store.commit([], [Put("/a", b"")])
        other = await _open(f"etcd://{shared_etcd.hosts}/{store._root[1:]}2")
        for _ in range(3):
            later = await other.commit([], [Put("/a", b"theirs")])
        await other.close()
        assert later is not None
        assert committed is not None
        # Their history goes, and with it all that came before the listing.
        _ask(shared_etcd, "/v3/kv/compaction", {"revision": str(later)})
        listing = await store.list("")
        assert [entry.value for entry in listing.entries] == [b""]
        assert listing.committed == committed < later <= listing.revision
        async with store.watch("", listing.revision) as watch:
            await store.commit([], [Put("/b", b"")])
            assert [entry.key for entry in (await _receive(watch)).puts] == ["/b"]

    async def test_a_long_history_comes_in_parts_and_whole(self, store: EtcdMetadataStore) -> None:
        before = (await store.list("")).revision
        noise = random.Random(2)
        values = [noise.randbytes(300_000) for _ in range(24)]
        for start in range(0, 24, 4):
            await store.commit([], [Put(f"/{number}", values[number]) for number in range(start, start + 4)])
        async with store.watch("", before) as watch:
            for start in range(0, 24, 4):
                change = await _receive(watch)
                assert sorted(entry.value for entry in change.puts) == sorted(values[start : start + 4])

    async def test_a_damaged_value_ends_it(self, shared_etcd: Etcd, store: EtcdMetadataStore) -> None:
        async with store.watch("", (await store.list("")).revision) as watch:
            await store.commit([], [Put("/a", b"")])
            await _receive(watch)
            key = b64encode(f"{store._root}/a".encode()).decode()
            _ask(shared_etcd, "/v3/kv/put", {"key": key, "value": b64encode(b"\x00zrubbish").decode()})
            with pytest.raises(MetadataDamagedError):
                await _receive(watch)
        with pytest.raises(MetadataDamagedError):
            await store.get("/a")


async def test_a_database_that_is_full_is_waited_for(shared_etcd: Etcd, store: EtcdMetadataStore) -> None:
    await store.commit([], [Put("/a", b"1")])
    member = _ask(shared_etcd, "/v3/maintenance/status", {})["header"]["member_id"]
    alarm = {"memberID": member, "alarm": "NOSPACE"}
    _ask(shared_etcd, "/v3/maintenance/alarm", {"action": "ACTIVATE", **alarm})
    try:
        with pytest.raises(StoreUnavailableError, match="its database is full"):
            await store.commit([], [Put("/a", b"2")])
        with pytest.raises(StoreUnavailableError, match="its database is full"):
            await store.grant_lease(10_000)
        assert [entry.value for entry in (await store.list("")).entries] == [b"1"]
    finally:
        _ask(shared_etcd, "/v3/maintenance/alarm", {"action": "DEACTIVATE", **alarm})
    assert await store.commit([], [Put("/a", b"2")]) is not None


async def test_a_lease_that_is_lost(store: EtcdMetadataStore) -> None:
    lease = await store.grant_lease(1_000)
    await store.keep_alive(lease)
    await store.commit([], [Put("/alive/1", b"", lease)])
    async with store.watch("/alive/", (await store.list("")).revision) as watch:
        assert (await _receive(watch)).deletes == ("/alive/1",)
    with pytest.raises(LeaseExpiredError):
        await store.keep_alive(lease)
    with pytest.raises(LeaseExpiredError):
        await store.commit([], [Put("/a", b""), Put("/alive/1", b"", lease)])
    await store.revoke_lease(lease)
    assert (await store.list("")).entries == ()


class TestFailures:
    async def test_an_etcd_that_stops_and_starts_again(self, etcd: Etcd, nursery: trio.Nursery) -> None:
        store = await _open(f"etcd://{etcd.hosts}")
        controller = Controller(store, BrokerConfig(), node_id=1)
        await nursery.start(controller.run)
        broker = BrokerImage(1, (Endpoint("PLAINTEXT", "127.0.0.1", 9092),), incarnation="i", directory_id="d")
        await controller.register_broker(broker, await store.grant_lease(60_000))
        await controller.create_topic(NewTopic("before", 1, 1))
        etcd.kill()
        with pytest.raises(StoreUnavailableError, match="cannot be reached"):
            await controller.create_topic(NewTopic("during", 1, 1))
        assert "before" in controller.image.topics
        etcd.start_member(0)
        await trio.to_thread.run_sync(etcd.wait_until_ready, 0)
        with trio.fail_after(30):
            while True:
                try:
                    await controller.create_topic(NewTopic("after", 1, 1))
                    break
                except (StoreUnavailableError, TopicAlreadyExistsError):
                    await trio.sleep(0.05)
            while "after" not in controller.image.topics:
                await controller.next_image()
        assert set(controller.image.topics) == {"before", "after"}
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            await store.close()

    async def test_a_leader_that_is_killed(self, three: Etcd) -> None:
        store = await _open(f"etcd://{three.hosts}/c")
        async with store.watch("", (await store.list("")).revision) as watch:
            await store.commit([], [Put("/n", b"0")])
            await _receive(watch)
            three.kill(three.leader())
            seen = b""
            for number in range(1, 20):
                value = b"%d" % number
                with trio.fail_after(30):
                    while True:
                        try:
                            assert await store.commit([], [Put("/n", value)]) is not None
                            break
                        except StoreUnavailableError:
                            await trio.sleep(0.05)
                    while seen != value:
                        seen = (await watch.receive()).puts[0].value
        await store.close()

    async def test_a_member_that_is_frozen(self, three: Etcd, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(etcd_watch, "QUIET_SECONDS", 0.3)
        monkeypatch.setattr(etcd_watch, "PROBE_SECONDS", 0.3)
        leader = three.leader()
        follower = (leader + 1) % 3
        ports = [three.clients[follower], three.clients[leader]]
        writer = await _open(f"etcd://127.0.0.1:{three.clients[leader]}/c")
        reader = await _open("etcd://" + ",".join(f"127.0.0.1:{port}" for port in ports) + "/c")
        async with reader.watch("", (await reader.list("")).revision) as watch:
            await writer.commit([], [Put("/a", b"")])
            assert (await _receive(watch)).puts[0].key == "/a"
            three.pause(follower)
            await writer.commit([], [Put("/b", b"")])
            assert (await _receive(watch)).puts[0].key == "/b"
        await reader.close()
        await writer.close()

    async def test_a_store_that_is_closed_refuses(self, shared_etcd: Etcd) -> None:
        store = await _open(f"etcd://{shared_etcd.hosts}/closed")
        await store.close()
        with pytest.raises(StoreUnavailableError, match="is closed"):
            await store.get("/a")
        with pytest.raises(StoreUnavailableError, match="is closed"):
            async with store.watch("", 0):
                pass


class TestWhatIsRefusedAtTheStart:
    async def test_nobody_listens(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("ottla.metastore.etcd_client.INSIST_SECONDS", 0)
        with pytest.raises(StoreUnavailableError, match=r"cannot be reached \(127.0.0.1:1: "):
            await _open("etcd://127.0.0.1:1/a")

    async def test_a_name_that_is_unknown(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("ottla.metastore.etcd_client.INSIST_SECONDS", 0)
        with pytest.raises(StoreUnavailableError, match=r"cannot be reached \(nowhere.invalid:2379: .+\)"):
            await _open("etcd://nowhere.invalid/a")

    async def test_something_else_answers(self, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("ottla.metastore.etcd_client.INSIST_SECONDS", 0)

        async def answer(stream: trio.SocketStream) -> None:
            await stream.receive_some()
            await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")

        listeners = await nursery.start(partial(trio.serve_tcp, answer, 0))
        port = listeners[0].socket.getsockname()[1]
        with pytest.raises(StoreUnavailableError, match="does not answer as etcd does"):
            await _open(f"etcd://127.0.0.1:{port}/a")
        nursery.cancel_scope.cancel()

    async def test_a_prefix_of_something_else(self, shared_etcd: Etcd) -> None:
        key = b64encode(b"/strange/key").decode()
        _ask(shared_etcd, "/v3/kv/put", {"key": key, "value": ""})
        with pytest.raises(StoreUnavailableError, match="is not an Ottla cluster: choose another prefix"):
            await _open(f"etcd://{shared_etcd.hosts}/strange")
        with pytest.raises(StoreUnavailableError, match="/strange/key of etcd is not of an Ottla cluster"):
            await _open(f"etcd://{shared_etcd.hosts}/strange/key")

    async def test_a_prefix_within_another_cluster_or_around_it(self, shared_etcd: Etcd) -> None:
        inner = await _open(f"etcd://{shared_etcd.hosts}/outer/inner")
        await inner.commit([], [Put("/a", b"")])
        await inner.close()
        with pytest.raises(StoreUnavailableError, match="below /outer is not an Ottla cluster"):
            await _open(f"etcd://{shared_etcd.hosts}/outer")
        with pytest.raises(StoreUnavailableError, match="lies within the cluster of /outer/inner"):
            await _open(f"etcd://{shared_etcd.hosts}/outer/inner/most")

    async def test_clusters_whose_names_begin_alike_are_apart(self, shared_etcd: Etcd) -> None:
        one, two = [await _open(f"etcd://{shared_etcd.hosts}/{name}") for name in ("prod", "prod2")]
        await one.commit([], [Put("/a", b"1")])
        await two.commit([], [Put("/a", b"2")])
        await one.commit([], [DeletePrefix("")])
        assert (await one.list("")).entries == ()
        assert [entry.value for entry in (await two.list("")).entries] == [b"2"]
        await one.close()
        await two.close()


async def test_user_and_password(etcd: Etcd) -> None:
    _ask(etcd, "/v3/auth/user/add", {"name": "root", "password": "secret"})
    _ask(etcd, "/v3/auth/user/grant", {"user": "root", "role": "root"})
    _ask(etcd, "/v3/auth/user/add", {"name": "ottla", "password": "word"})
    _ask(etcd, "/v3/auth/role/add", {"name": "broker"})
    span = {"key": b64encode(b"/secured").decode(), "range_end": b64encode(b"/securee").decode()}
    _ask(etcd, "/v3/auth/role/grant", {"name": "broker", "perm": {"permType": "READWRITE", **span}})
    _ask(etcd, "/v3/auth/user/grant", {"user": "ottla", "role": "broker"})
    _ask(etcd, "/v3/auth/enable", {})
    url = f"etcd://{etcd.hosts}/secured"
    with pytest.raises(StoreUnavailableError, match=r"asks for a user: set ottla\.metadata\.store\.user"):
        await _open(url)
    with pytest.raises(StoreUnavailableError, match="authentication failed"):
        await _open(url, EtcdAccess("ottla", "guess"))
    with pytest.raises(StoreUnavailableError, match="permission denied"):
        await _open(f"etcd://{etcd.hosts}/other", EtcdAccess("ottla", "word"))
    store = await _open(url, EtcdAccess("ottla", "word"))
    lease = await store.grant_lease(10_000)
    await store.commit([], [Put("/alive/1", b"", lease)])
    await store.keep_alive(lease)
    await store.revoke_lease(lease)
    await store.commit([], [Put("/a", b"1")])
    store._client._token = "ended.1"
    assert await store.commit([], [Put("/a", b"2")]) is not None
    async with store.watch("", (await store.list("")).revision) as watch:
        await store.commit([], [Put("/a", b"3")])
        assert (await _receive(watch)).puts[0].value == b"3"
    await store.close()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the program openssl")
async def test_tls(tmp_path: Path) -> None:
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    words = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=etcd -addext subjectAltName=IP:127.0.0.1"
    made = [*words.split(), "-keyout", str(key), "-out", str(certificate)]
    await trio.to_thread.run_sync(lambda: subprocess.run(made, check=True, capture_output=True))
    etcd = Etcd(tmp_path / "etcd", certificate=certificate, key=key)
    etcd.start()
    try:
        url = f"etcds://{etcd.hosts}/a"
        with pytest.raises(StoreUnavailableError, match="CERTIFICATE_VERIFY_FAILED"):
            await _open(url)
        with pytest.raises(StoreUnavailableError, match="files for TLS"):
            await _open(url, EtcdAccess(ca_file=str(tmp_path / "absent")))
        ca = str(certificate)
        store = await _open(url, EtcdAccess(ca_file=ca, certificate_file=ca, key_file=str(key)))
        async with store.watch("", (await store.list("")).revision) as watch:
            await store.commit([], [Put("/a", b"")])
            assert (await _receive(watch)).puts[0].key == "/a"
        await store.close()
    finally:
        etcd.close()
