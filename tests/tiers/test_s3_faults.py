"""A tier on a server with the interface of S3 that fails in between, as networks and servers do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from random import Random
from uuid import uuid4

import pytest

from ottla.tiers.address import open_object_store
from ottla.tiers.errors import ObjectStoreUnavailableError
from ottla.tiers.manifest import Manifest
from ottla.tiers.object_store import ObjectStore
from ottla.tiers.patient_store import PatientObjectStore
from ottla.tiers.sweep import sweep_topic
from tests.tiers.http_faults import Fault, FaultyProxy, faulty_proxy
from tests.tiers.logs import log_of
from tests.tiers.s3 import BUCKET, config_of, s3_server
from tests.tiers.tier import NAMES, PROBE, Tier, read_all, reading

pytest.importorskip("obstore")
pytest.importorskip("moto")


@pytest.fixture(scope="module")
def proxied() -> Iterator[tuple[FaultyProxy, str]]:
    with s3_server() as endpoint, faulty_proxy(endpoint) as found:
        yield found


@pytest.fixture
def proxy(proxied: tuple[FaultyProxy, str]) -> FaultyProxy:
    proxied[0].let_all_pass()
    return proxied[0]


@pytest.fixture
def store(proxied: tuple[FaultyProxy, str]) -> ObjectStore:
    store = open_object_store(f"s3://{BUCKET}/{uuid4()}", timeout_seconds=10, config=config_of(proxied[1]))
    return PatientObjectStore(store, timeout_seconds=20, attempts=4)


@pytest.mark.parametrize("fault", [fault for fault in Fault if fault is not Fault.NONE])
async def test_a_fault_of_each_request_in_turn(proxy: FaultyProxy, store: ObjectStore, fault: Fault) -> None:
    """Every third request, so that each is met by it sooner or later, and none too often."""
    counted = [0]

    def choose(method: str, path: str) -> Fault:
        counted[0] += 1
        return fault if counted[0] % 3 == 0 else Fault.NONE

    source = log_of(0)
    proxy.choose = choose
    tier = Tier(store, part_bytes=4000)
    manifest = (await tier.copy([source]))[0]
    assert isinstance(manifest, Manifest)
    async with reading(store) as reader:
        assert await read_all(reader, manifest) == source.content
    await sweep_topic(store, NAMES, probe=PROBE)
    proxy.choose = lambda method, path: Fault.NONE
    async with reading(store) as reader:
        assert await read_all(reader, await Tier(store).file(0).refresh()) == source.content
    assert proxy.faults.count(fault) > 5


@pytest.mark.parametrize("seed", range(3))
async def test_random_faults_lose_nothing_and_name_nothing_that_is_not_there(
    proxy: FaultyProxy, store: ObjectStore, seed: int
) -> None:
    random = Random(seed)
    faults = [fault for fault in Fault if fault is not Fault.NONE]
    proxy.choose = lambda method, path: random.choice(faults) if random.random() < 0.3 else Fault.NONE
    tier = Tier(store, part_bytes=4000)
    written = b""
    offset = 0
    for _ in range(3):
        source = log_of(0, offset=offset, previous_epoch=1 if offset else -1)
        written += source.content
        # The copier tries again until the manifest has it, whichever attempt that was.
        for _ in range(20):
            with suppress(ObjectStoreUnavailableError):
                await tier.copy([source])
                offset = (await tier.file(0).refresh()).end_offset
            if offset == source.end_offset:
                break
        assert offset == source.end_offset
    proxy.choose = lambda method, path: Fault.NONE
    manifest = await Tier(store).file(0).refresh()
    async with reading(store) as reader:
        assert await read_all(reader, manifest) == written
