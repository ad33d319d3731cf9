"""One partition's manifest as it is in the object store, and how it is changed there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from uuid import UUID

import trio

from ottla.runtime.backoff import Backoff
from ottla.tiers.errors import ObjectMissingError, ObjectStoreUnavailableError, PreconditionFailedError
from ottla.tiers.manifest import Manifest
from ottla.tiers.object_store import ABSENT, ObjectStore
from ottla.tiers.offload import Offload, in_a_thread

__all__ = ["Edit", "ManifestFile"]

_ATTEMPTS: Final = 10
_FIRST_PAUSE_SECONDS: Final = 0.05
_MAX_PAUSE_SECONDS: Final = 2.0

Edit = Callable[[Manifest], Manifest]
"""What is to be changed: from the manifest as it is to another one, or the same if nothing is to be done.

It may be called several times, each time with what is there by then, and must see for itself that it is done already.
"""


class ManifestFile:
    """Reads and changes one partition's manifest. `manifest` is as it was last seen, None before the first time."""

    def __init__(
        self,
        store: ObjectStore,
        name: str,
        topic_id: UUID,
        partition: int,
        *,
        offload: Offload = in_a_thread,
    ) -> None:
        self._store = store
        self._name = name
        self._topic_id = topic_id
        self._partition = partition
        self._offload = offload
        self._version = ABSENT
        # Two edits of one process at a time would only conflict.
        self._lock = trio.Lock()
        self.manifest: Manifest | None = None

    async def refresh(self) -> Manifest:
        """Look at the object store, and return what is there; an empty manifest of revision 0 if there is none.

        What was seen before stays if the store cannot answer, answers something that is damaged, or something older
        than it has answered before.
        """
        async with self._lock:
            return await self._refresh()

    async def change(self, edit: Edit) -> Manifest:
        """Change what is there, and return it as it is then.

        What `edit` raises comes through, with nothing changed. ObjectStoreUnavailableError if the store could not be
        reached, or somebody else was quicker each time: it may have been changed then, so do it again later.
        """
        async with self._lock:
            if self.manifest is None:
                await self._refresh()
            backoff = Backoff(_FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS)
            while True:
                try:
                    return await self._change(edit)
                except (PreconditionFailedError, ObjectStoreUnavailableError) as error:
                    if backoff.failures + 1 >= _ATTEMPTS:
                        raise ObjectStoreUnavailableError(f"{self._name} could not be changed: {error}") from error
                # In both cases the write may have succeeded, and only its answer was lost.
                await backoff.wait()
                await self._refresh()

    async def _change(self, edit: Edit) -> Manifest:
        present = self.manifest
        assert present is not None
        edited = await self._offload(edit, present)
        if edited is present:
            return present
        content = await self._offload(edited.to_bytes)
        version = await self._store.put_if(self._name, content, self._version)
        self.manifest, self._version = edited, version
        return edited

    async def _refresh(self) -> Manifest:
        known = self.manifest
        try:
            if known is None or not known.revision:
                found = await self._store.get(self._name)
            else:
                changed = await self._store.get_if_changed(self._name, self._version)
                if changed is None:
                    return known
                found = changed
        except ObjectMissingError:
            if known is not None and known.revision:
                raise ObjectStoreUnavailableError(f"{self._name}, which was there, is not to be found") from None
            self.manifest = Manifest(self._topic_id, self._partition)
            self._version = ABSENT
            return self.manifest
        manifest = await self._offload(Manifest.from_bytes, found.content, self._topic_id, self._partition)
        if known is not None and manifest.revision < known.revision:
            raise ObjectStoreUnavailableError(
                f"the store shows revision {manifest.revision} of {self._name} after revision {known.revision}"
            )
        self.manifest, self._version = manifest, found.version
        return manifest
