"""The metadata of a backup where etcd keeps it: copied into a `cluster.sqlite`, which is what a restored folder has."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio

from ottla.cli.folders.backup.errors import BackupError

if TYPE_CHECKING:
    from ottla.metadata.image import MetadataImage, PartitionState
    from ottla.metastore.store import Listing, Operation

_BATCH_KEYS: Final = 1_000


class EtcdMetadata:
    """A cluster's metadata in etcd at one moment, except keys on leases (see `ForeignMetadata`)."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._listing: Listing | None = None

    def read(self) -> None:
        """Read all of it. Raises BackupError."""
        from ottla.metastore.errors import MetadataError
        from ottla.settings.config import ConfigError

        try:
            self._listing = trio.run(_read, self._address)
        except (MetadataError, ConfigError) as error:
            raise BackupError(f"--metadata {self._address}: {error}") from None

    def read_again(self, node_ids: Sequence[int]) -> bool:
        """Whether replicas of these nodes have changed since the last reading so that their copies may lack records."""
        before = self._listing
        self.read()
        assert before is not None
        assert self._listing is not None
        return counts_anew(_image(before), _image(self._listing), node_ids)

    def write(self, target: Path) -> None:
        """Write what was read last into a new file."""
        from ottla.metastore.errors import MetadataError

        assert self._listing is not None
        try:
            trio.run(_write, self._listing, target)
        except MetadataError as error:
            raise BackupError(str(error)) from None


def counts_anew(before: MetadataImage, after: MetadataImage, node_ids: Sequence[int]) -> bool:
    """Whether a partition that was there before has come to count on one of these nodes, or may have meanwhile.

    One change that counts on nobody new leaves every replica that is counted on as it was. After several, even a node
    that is counted on before and after may have been out of the in-sync set in between.
    """
    nodes = set(node_ids)
    for topic_id, topic in after.topics_by_id.items():
        old = before.topics_by_id.get(topic_id)
        if old is None or old.partitions == topic.partitions:
            continue
        for was, is_now in zip(old.partitions, topic.partitions, strict=False):
            counted = _counted_on(is_now) & nodes
            changes = is_now.partition_epoch - was.partition_epoch
            if counted and (changes > 1 or counted - _counted_on(was)):
                return True
    return False


def _counted_on(state: PartitionState) -> set[int]:
    """The nodes that may lead without asking the others."""
    return {*state.isr, *state.elr, *state.last_known_elr}


def _image(listing: Listing) -> MetadataImage:
    from ottla.metadata.image import MetadataImage
    from ottla.metadata.image_delta import evolve

    return evolve(MetadataImage(), listing.revision, listing.entries, ()).after


async def _read(text: str) -> Listing:
    from ottla.metadata import keys
    from ottla.metadata.open_store import open_etcd
    from ottla.metastore.address import parse_metadata_address
    from ottla.settings.sources import load

    try:
        address = parse_metadata_address(text)
    except ValueError as error:
        raise BackupError(f"--metadata {text}: {error}") from None
    if address is None:
        raise BackupError(f"--metadata {text}: use it only with etcd://host:port,…/prefix")
    source = await open_etcd(address, load(environment=os.environ))
    try:
        listing = await source.list("")
    finally:
        await source.close()
    if not any(entry.key == keys.CLUSTER_ID for entry in listing.entries):
        raise BackupError(f"{text} holds no cluster")
    return listing


async def _write(listing: Listing, target: Path) -> None:
    from ottla.metastore.sqlite import open_sqlite_store
    from ottla.metastore.store import NO_LEASE, Put
    from ottla.storage.clock import SystemClock

    kept: list[Operation] = [Put(entry.key, entry.value) for entry in listing.entries if entry.lease == NO_LEASE]
    store = await open_sqlite_store(target, SystemClock().time_ms)
    try:
        for start in range(0, len(kept), _BATCH_KEYS):
            await store.commit([], kept[start : start + _BATCH_KEYS])
    finally:
        await store.close()
