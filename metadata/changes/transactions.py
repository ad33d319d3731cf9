"""Changes of the metadata as transactions: planned, committed unless somebody else was faster, and applied here.

What a transaction consists of is decided in `broker_transactions`, `topic_transactions`, `partition_transactions`,
`config_transactions` and `access_transactions`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from math import inf
from typing import Final, TypeVar

import trio

from ottla.metadata import keys
from ottla.metadata.image import MetadataImage
from ottla.metadata.loader import MetadataLoader
from ottla.metastore.errors import ConflictError, StoreUnavailableError
from ottla.metastore.store import Compare, MetadataStore, Operation, Put

R = TypeVar("R")

RevisionOf = Callable[[str], int]
"""The revision of a key's last change as far as the image shows it, 0 for an absent key."""

Plan = tuple[Sequence[Compare], Sequence[Operation], R]
"""The comparisons, the operations, and the answer if they are committed."""

Planner = Callable[[MetadataImage, RevisionOf], Awaitable[Plan[R]]]
"""Plans a change on an image; called again if somebody else was faster. What it raises refuses the change."""

MAX_ATTEMPTS: Final = 20

#: How long transactions may take that are under way when the node stops.
SHUTDOWN_SECONDS: Final = 1.0


class Transactions:
    """Commits what planners make of the image that `loader` keeps."""

    def __init__(self, store: MetadataStore, loader: MetadataLoader) -> None:
        self._store = store
        self._loader = loader
        self._under_way: set[trio.CancelScope] = set()
        self._shuts_down_at = inf

    async def commit(self, plan: Planner[R]) -> R:
        """Commit what `plan` makes of the present image, and return when it is applied here.

        A plan of many things lets others run in between: an image never changes, and the comparison of keys finds what
        was committed meanwhile.
        """
        with self.until_shutdown():
            for _ in range(MAX_ATTEMPTS):
                compares, operations, result = await plan(self._loader.image, self._loader.revision_of)
                if not operations:
                    return result
                revision = await self._store.commit(compares, operations)
                if revision is not None:
                    await self._loader.wait_for(revision)
                    return result
                await self.catch_up()
        raise ConflictError("The metadata keeps being changed elsewhere.")

    async def catch_up(self) -> None:
        """Return once the image shows everything that was committed before this call; raises StoreUnavailableError."""
        with self.until_shutdown():
            await self._loader.wait_for((await self._store.list(keys.CLUSTER)).committed)

    def begin_shutdown(self) -> None:
        """See `Controller.begin_shutdown`."""
        self._shuts_down_at = trio.current_time() + SHUTDOWN_SECONDS
        for scope in self._under_way:
            scope.deadline = self._shuts_down_at

    @contextmanager
    def until_shutdown(self) -> Iterator[None]:
        """What is in it waits for the store, and ends when the node stops, as `begin_shutdown` says."""
        with trio.CancelScope(deadline=self._shuts_down_at) as scope:
            self._under_way.add(scope)
            try:
                yield
            finally:
                self._under_way.discard(scope)
        if scope.cancelled_caught:
            # As Kafka's controller says it, which answers REQUEST_TIMED_OUT as well.
            raise StoreUnavailableError("The controller is shutting down.")


async def replace_number(store: MetadataStore, key: str, update: Callable[[int | None], int]) -> int | None:
    """Replace the number that a key holds by what `update` makes of it; None stands for an absent key.

    Returns the number before, when the new one is durable.
    """
    for _ in range(MAX_ATTEMPTS):
        entry = await store.get(key)
        before = None if entry is None else int(keys.decode(entry.value))
        after = update(before)
        compare = Compare(key, 0 if entry is None else entry.mod_revision)
        if after == before or await store.commit([compare], [Put(key, keys.encode(after))]) is not None:
            return before
    raise ConflictError(f"{key} keeps being changed elsewhere.")
