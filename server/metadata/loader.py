"""Follows the metadata store and tells this node's parts what has changed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from ottla.server.metadata.errors import WatchLaggedError
from ottla.server.metadata.evolution import describe, evolve
from ottla.server.metadata.image import MetadataDelta, MetadataImage
from ottla.server.metadata.store import Change, MetadataStore

Subscriber = Callable[[MetadataDelta], Awaitable[None]]


class MetadataLoader:
    """Keeps the image of the metadata and passes each change on, in order and without a gap.

    Own changes and other nodes' arrive the same way, through the store's watch. `image` shows a change only
    when every subscriber has applied it, so that whoever reads the image (Metadata requests) never names a
    leader that does not lead yet. Subscribers are called in the order of their subscription, and a change
    is finished with all of them before the next one begins. What a subscriber raises ends `run`.
    """

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._subscribers: list[Subscriber] = []
        self._published = trio.Event()
        self._revisions: dict[str, int] = {}
        self.image = MetadataImage()

    def subscribe(self, subscriber: Subscriber) -> None:
        """Call `subscriber` for every change from here on; subscribe before `run` to see the first one."""
        self._subscribers.append(subscriber)

    def revision_of(self, key: str) -> int:
        """The revision of the key's last change as far as it is published, 0 for an absent key."""
        return self._revisions.get(key, 0)

    async def next_image(self) -> MetadataImage:
        """Wait for the next change, which every subscriber has applied then."""
        await self._published.wait()
        return self.image

    async def wait_for(self, revision: int) -> None:
        """Return when the image is at `revision` or beyond."""
        while self.image.revision < revision:
            await self._published.wait()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Load everything, report that as started, and follow the changes until cancelled."""
        while True:
            await self._load()
            async with self._store.watch("", self.image.revision) as watch:
                task_status.started()
                task_status = trio.TASK_STATUS_IGNORED
                try:
                    while True:
                        change = await watch.receive()
                        await self._publish(evolve(self.image, change.revision, change.puts, change.deletes), change)
                except WatchLaggedError:
                    continue

    async def _load(self) -> None:
        listing = await self._store.list("")
        after = evolve(MetadataImage(), listing.revision, listing.entries, ()).after
        before = self.image
        topics = [*before.topics, *(name for name in after.topics if name not in before.topics)]
        configs = [*before.configs, *(resource for resource in after.configs if resource not in before.configs)]
        gone = tuple(self._revisions.keys() - {entry.key for entry in listing.entries})
        change = Change(listing.revision, listing.entries, gone)
        await self._publish(describe(before, after, topics, configs), change)

    async def _publish(self, delta: MetadataDelta, change: Change) -> None:
        for subscriber in self._subscribers:
            await subscriber(delta)
        # Together with the image: who plans on an image compares the revisions of that one, or a change that is being
        # applied now would be overwritten unseen.
        self.image = delta.after
        for key in change.deletes:
            self._revisions.pop(key, None)
        self._revisions.update((entry.key, entry.mod_revision) for entry in change.puts)
        published, self._published = self._published, trio.Event()
        published.set()
