"""Follows the metadata store and tells this node's parts what has changed."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final

import trio

from ottla.metadata.image import MetadataDelta, MetadataImage, PartitionChange
from ottla.metadata.image_delta import describe, evolve, image_of
from ottla.metastore.errors import MetadataDamagedError, StoreUnavailableError, WatchLaggedError
from ottla.metastore.store import Change, Listing, MetadataStore
from ottla.runtime.backoff import Backoff

if TYPE_CHECKING:
    from uuid import UUID

logger = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS: Final = 0.1
MAX_PAUSE_SECONDS: Final = 2.0

Subscriber = Callable[[MetadataDelta], Awaitable[None]]


class MetadataLoader:
    """Keeps the image of the metadata and passes each change on, in order and without a gap.

    Own changes and other nodes' arrive the same way, through the store's watch. `image` shows a change only
    when every subscriber has applied it, so that readers of the image (Metadata requests) never name a leader
    that does not lead yet. Subscribers are called in the order of their subscription, and a change
    is finished with all of them before the next one begins. What a subscriber raises ends `run`.
    """

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._subscribers: list[Subscriber] = []
        self._publishing = trio.Lock()
        self._published = trio.Event()
        #: Between attempts to follow a store that cannot be reached; 0 while it is followed.
        self._backoff = Backoff(FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS)
        self._revisions: dict[str, int] = {}
        self.image = MetadataImage()

    def subscribe(self, subscriber: Subscriber) -> None:
        """Call `subscriber` for every change from here on; subscribe before `run` to see the first one."""
        self._subscribers.append(subscriber)

    def revision_of(self, key: str) -> int:
        """The revision of the key's last change as far as it is published, 0 for an absent key."""
        return self._revisions.get(key, 0)

    async def next_image(self) -> MetadataImage:
        """Wait until every subscriber has applied the next change, or the store is lost."""
        await self._published.wait()
        return self.image

    async def wait_for(self, revision: int) -> None:
        """Return when the image is at `revision` or beyond; raises StoreUnavailableError if the store is lost first."""
        while self.image.revision < revision:
            if self._backoff.failures:
                raise StoreUnavailableError(
                    "The metadata store cannot be reached: what it has decided is not known yet."
                )
            await self._published.wait()

    async def publish_again(self, partitions: Iterable[tuple[UUID, int]]) -> None:
        """Tell every subscriber of these partitions as if they had changed: some may have failed to follow them."""
        async with self._publishing:
            image = self.image
            changes: list[PartitionChange] = []
            for topic_id, index in partitions:
                topic = image.topic_by_id(topic_id)
                if topic is not None and index < len(topic.partitions):
                    state = topic.partitions[index]
                    changes.append(PartitionChange(topic, index, state, state))
            for subscriber in self._subscribers:
                await subscriber(MetadataDelta(image, image, changed_partitions=changes))

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Load everything, report that as started, and follow the changes until cancelled.

        Raises StoreUnavailableError if the store cannot be reached at the start. If it is lost later, the image stays
        as it is, and goes on without a gap once the store is back.
        """
        await self._load(await self._store.list(""))
        task_status.started()
        while True:
            ended = await self._follow()
            lost = await self._load_again() if isinstance(ended, WatchLaggedError) else ended
            if lost is not None:
                await self._pause(lost)

    async def _follow(self) -> WatchLaggedError | StoreUnavailableError:
        """Apply changes until the watch ends; returns why it has. What a subscriber raises is not caught."""
        async with AsyncExitStack() as stack:
            try:
                watch = await stack.enter_async_context(self._store.watch("", self.image.revision))
            except StoreUnavailableError as error:
                return error
            self._backoff.reset()
            while True:
                try:
                    change = await watch.receive()
                except (WatchLaggedError, StoreUnavailableError) as error:
                    return error
                await self._publish(evolve(self.image, change.revision, change.puts, change.deletes), change)

    async def _load_again(self) -> StoreUnavailableError | None:
        try:
            listing = await self._store.list("")
        except StoreUnavailableError as error:
            return error
        await self._load(listing)
        return None

    async def _pause(self, lost: StoreUnavailableError) -> None:
        """Wait before the next attempt, longer each time.

        The membership logs that the store cannot be reached; damage, which only a reader finds, is logged here.
        """
        if isinstance(lost, MetadataDamagedError) and not self._backoff.failures:
            text = "the changes of the metadata cannot be followed, and what was known before is served: %s"
            logger.error(text, lost, extra={"error": str(lost)})
        seconds = self._backoff.fail()
        self._wake()
        await trio.sleep(seconds)

    async def _load(self, listing: Listing) -> None:
        after = image_of(listing.revision, listing.entries)
        before = self.image
        topics = [*before.topics, *(name for name in after.topics if name not in before.topics)]
        configs = [*before.configs, *(resource for resource in after.configs if resource not in before.configs)]
        gone = tuple(self._revisions.keys() - {entry.key for entry in listing.entries})
        change = Change(listing.revision, listing.entries, gone)
        await self._publish(describe(before, after, topics, configs), change)

    async def _publish(self, delta: MetadataDelta, change: Change) -> None:
        async with self._publishing:
            for subscriber in self._subscribers:
                await subscriber(delta)
            # Together with the image: a plan compares the revisions of the image that it was made on, or it would
            # overwrite unseen a change that is being applied now.
            self.image = delta.after
            for key in change.deletes:
                self._revisions.pop(key, None)
            self._revisions.update((entry.key, entry.mod_revision) for entry in change.puts)
        self._wake()

    def _wake(self) -> None:
        published, self._published = self._published, trio.Event()
        published.set()
