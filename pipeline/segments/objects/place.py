"""The object store that a scan reads, and how it is asked: again after failures, and not without end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from anyio.from_thread import BlockingPortal, start_blocking_portal

from ottla.pipeline.errors import StoreError
from ottla.pipeline.extra import needing
from ottla.storage.inspect.segment_reader import RealDisk
from ottla.tiers.address import open_object_store
from ottla.tiers.errors import ObjectMissingError, TierError
from ottla.tiers.object_store import ObjectStore
from ottla.tiers.patient_store import PatientObjectStore
from ottla.tiers.reading.disk_cache import DiskCache
from ottla.tiers.reading.reader import TierReader

__all__ = ["Place", "reading", "store_error"]

_TIMEOUT_SECONDS: Final = 30.0
_ATTEMPTS: Final = 6


class Place(NamedTuple):
    """An object store's address, and obstore's settings for it, as they are sent to an executor."""

    url: str
    config: dict[str, str]

    def open(self) -> ObjectStore:
        """The store; nobody is asked anything yet. StoreError for settings that it cannot have."""
        try:
            with needing("tiers"):
                store = open_object_store(self.url, timeout_seconds=_TIMEOUT_SECONDS, config=self.config)
        except (TierError, ValueError) as error:
            raise StoreError(f"{self.url} cannot be opened: {error}.") from error
        return PatientObjectStore(store, timeout_seconds=_TIMEOUT_SECONDS, attempts=_ATTEMPTS)


@contextmanager
def reading(store: ObjectStore) -> Iterator[tuple[TierReader, BlockingPortal]]:
    """A reader that runs in a thread of its own, and the way to call it from here.

    It has no cache on the disk: a scan reads everything once. What is raised within comes through as it is.
    """
    reader = TierReader(store, DiskCache(RealDisk(), "", 0))
    with start_blocking_portal("trio") as portal:
        running = portal.wrap_async_context_manager(reader.run())
        running.__enter__()
        try:
            yield reader, portal
        finally:
            # Without the exception: the reader's nursery would make a group of it.
            running.__exit__(None, None, None)


def store_error(place: Place, error: TierError) -> StoreError:
    """What a failure means to the one who has asked."""
    if isinstance(error, ObjectMissingError):
        return StoreError(
            f"{place.url}: {error}. A broker has removed it since the read was planned, by retention or because its "
            "topic was deleted: run the query again. `ottla fsck --remote` says whether anything is missing."
        )
    return StoreError(f"{place.url} cannot be read: {error}.")
