"""The door from a coordinator to the internal topic that keeps its state."""

from collections.abc import AsyncGenerator, Iterable
from typing import Protocol

from ottla.runtime.stages import Stages
from ottla.storage.turn import Turn


class CoordinatorLog(Protocol):
    """One internal topic, as coordinators see it.

    Appends and reads go through the replica manager: what is appended here is replicated, flushed, compacted and served
    to clients like any other topic's data.
    """

    @property
    def turn(self) -> Turn:
        """The event loop's turn, at whose end appends are written."""
        ...

    def begin_append(self, partition: int, records: bytes) -> Stages[int]:
        """Append one record batch and return its base offset once it is committed.

        Waits by a TurnWait for what the turn's end may bring.

        Raises CoordinatorNotAvailableError, NotCoordinatorError, CoordinatorLoadInProgressError, LaterEpochError or
        StateTooLargeError; then nothing may be taken as stored.
        """
        ...

    def read(self, partition: int) -> AsyncGenerator[memoryview, None]:
        """Yield the partition's committed record batches from the log start on, in bounded pieces of whole batches.

        They include everything that was appended before the reading began, whether or not anybody waited for it, if it
        is ever committed: a partition that has moved away and come back misses nothing. An empty piece says that what
        comes next is not committed yet, and has to be waited for.
        """
        ...

    async def confirm(self, partitions: Iterable[int]) -> None:
        """Return when nobody else had led any of the partitions when this was called: at once, unless this broker may
        have been replaced without having heard of it. Raises NotCoordinatorError if that cannot be known, or
        CoordinatorNotAvailableError.
        """
        ...


class PrunableLog(CoordinatorLog, Protocol):
    """A log whose beginning may be deleted: it is not compacted, and its writer knows what later records repeat."""

    async def delete_below(self, partition: int, offset: int) -> None:
        """Delete what lies below an offset. Raises CoordinatorError."""
        ...
