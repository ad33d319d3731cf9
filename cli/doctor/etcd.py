"""Checks of etcd by `ottla doctor`, if it keeps the metadata: each member, its alarms, and its cluster.

It reads only.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import trio

from ottla.cli.doctor.finding import Finding, fail, ok, warn
from ottla.cli.options import human_size
from ottla.metadata import keys
from ottla.metastore.address import parse_metadata_address
from ottla.metastore.clock_difference import CONSEQUENCE, TOLERATED_SECONDS, sentence
from ottla.metastore.errors import MetadataError, StoreUnavailableError
from ottla.storage.disk import RealDisk
from ottla.storage.errors import UnsupportedFormatError
from ottla.storage.node_dir import node_ids_in, read_note

if TYPE_CHECKING:
    from ottla.metastore.address import EtcdAddress
    from ottla.metastore.etcd_client import EtcdAccess, EtcdClient
    from ottla.settings.config import BrokerConfig

_OLDEST: Final = (3, 4)
_ASKED: Final = 5
_SLOW_MS: Final = 50.0
_STATUS: Final = "/v3/maintenance/status"
_MEND_SPACE: Final = "etcdctl compact, etcdctl defrag, then etcdctl alarm disarm; or a larger --quota-backend-bytes"


def examine(config: BrokerConfig, data_dir: str) -> Iterator[Finding]:
    """Nothing if the metadata is kept elsewhere."""
    address = parse_metadata_address(config.ottla_metadata_store)
    if address is None:
        return
    try:
        from ottla.metastore import etcd_client
    except ModuleNotFoundError as error:
        yield fail("etcd", f"{error.name} is not installed", "pip install 'ottla[etcd]'")
        return
    access = etcd_client.EtcdAccess(
        config.ottla_metadata_store_user,
        config.ottla_metadata_store_password,
        config.ottla_metadata_store_ssl_ca,
        config.ottla_metadata_store_ssl_certificate,
        config.ottla_metadata_store_ssl_key,
    )
    yield from trio.run(_examine, address, access, config, data_dir)


async def _examine(address: EtcdAddress, access: EtcdAccess, config: BrokerConfig, data_dir: str) -> list[Finding]:
    from ottla.metastore.etcd_client import EtcdClient

    findings: list[Finding] = []
    try:
        client = EtcdClient(address, access)
    except StoreUnavailableError as error:
        return [fail("etcd", str(error), "mend ottla.metadata.store.ssl.…")]
    try:
        members = [await _member(client, url) for url in address.endpoints]
    finally:
        await client.close()
    findings += [member.finding for member in members]
    findings += _clocks(client.clocks.seconds)
    answering = sum(member.answers for member in members)
    if answering * 2 <= len(members):
        said = f"{answering} of {len(members)} members answer; etcd needs more than half of them"
        findings.append(fail("etcd", said, "start etcd, or correct --metadata"))
    if answering:
        findings.append(_alarms({error for member in members for error in member.errors}))
    if answering:
        findings += await _contents(address, config, data_dir)
    return findings


class _Member(NamedTuple):
    """Findings about a member: whether it answers, and what it reports as wrong."""

    finding: Finding
    answers: bool
    errors: Collection[str] = ()


async def _member(client: EtcdClient, url: str) -> _Member:
    from ottla.metastore.etcd_client import EtcdError

    subject = f"etcd {url.partition('//')[2]}"
    try:
        times_ms = []
        for _ in range(_ASKED):
            began = time.perf_counter()
            status: dict[str, Any] = await client.read_at(url, _STATUS, {})
            times_ms.append((time.perf_counter() - began) * 1000)
    except EtcdError as error:
        finding = fail(subject, f"refuses: {error}", "correct ottla.metadata.store.user and …password")
        return _Member(finding, answers=True)
    except StoreUnavailableError as error:
        return _Member(fail(subject, str(error), "start it, or correct --metadata"), answers=False)
    return _Member(_judged(subject, status, sorted(times_ms)[_ASKED // 2]), True, status.get("errors", ()))


def _judged(subject: str, status: Mapping[str, Any], median_ms: float) -> Finding:
    version = str(status.get("version", "0"))
    said = (
        f"version {version}, {human_size(int(status.get('dbSize', 0)))} in its database, answers in {median_ms:.1f} ms"
    )
    if tuple(int(part) for part in version.split(".")[:2]) < _OLDEST:
        return fail(subject, said, "etcd 3.4 or later is needed")
    if int(status.get("leader", 0)) == 0:
        return fail(
            subject, f"{said}, and knows no leader", "make sure that more than half of the members can reach each other"
        )
    if median_ms > _SLOW_MS:
        return warn(subject, said, "topics and elections will be slow: put it nearer, or on a faster disk")
    return ok(subject, said)


def _clocks(seconds: Mapping[str, float]) -> list[Finding]:
    """Whether this machine's clock agrees with those of the members that have answered."""
    differing = {name: ahead for name, ahead in seconds.items() if abs(ahead) > TOLERATED_SECONDS}
    if differing:
        return [warn("clocks", sentence(name, ahead), CONSEQUENCE) for name, ahead in differing.items()]
    if not seconds:
        return []
    return [ok("clocks", f"this machine's and etcd's agree to within {TOLERATED_SECONDS:g} s")]


def _alarms(errors: Collection[str]) -> Finding:
    """The alarms of the members."""
    if any("NOSPACE" in error for error in errors):
        return fail("etcd alarms", "its database is full: it takes no changes", _MEND_SPACE)
    if errors:
        said = ", ".join(sorted(error.strip() for error in errors))
        return fail("etcd alarms", said, "see etcd's log, and etcdctl alarm list")
    return ok("etcd alarms", "none")


async def _contents(address: EtcdAddress, config: BrokerConfig, data_dir: str) -> list[Finding]:
    """Which cluster's metadata is there, and whether the data folder belongs to it."""
    from ottla.metadata.open_store import open_etcd

    subject = "metadata"
    try:
        store = await open_etcd(address, config)
        try:
            found = await store.get(keys.CLUSTER_ID)
        finally:
            await store.close()
    except MetadataError as error:
        return [fail(subject, str(error), "correct --metadata, or the user for etcd")]
    own = _cluster_of(Path(data_dir))
    if found is None:
        if own is None:
            return [ok(subject, f"there is no cluster under {address.root} yet: the first start creates it")]
        return [
            fail(
                subject,
                f"there is no cluster under {address.root}, and {data_dir} belongs to the cluster {own}",
                "correct the prefix in --metadata, or move the metadata there: ottla cluster move-metadata",
            )
        ]
    cluster_id = keys.decode(found.value)
    if own is not None and own != cluster_id:
        return [
            fail(
                subject,
                f"{address.root} holds the cluster {cluster_id}, and {data_dir} belongs to the cluster {own}",
                "correct --metadata or --data-dir",
            )
        ]
    return [ok(subject, f"{address.root} holds the cluster {cluster_id}")]


def _cluster_of(data_dir: Path) -> str | None:
    """The cluster that the nodes of a folder belong to; None if the folder does not say."""
    try:
        node_ids = node_ids_in(data_dir)
    except OSError:
        return None
    for node_id in node_ids:
        try:
            note = read_note(RealDisk(), str(data_dir / f"node-{node_id}"))
        except (OSError, UnsupportedFormatError):
            continue
        if note is not None and note.get("cluster_id"):
            return str(note["cluster_id"])
    return None
