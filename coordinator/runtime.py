"""One runtime for every coordinator: it replays an internal topic's partitions into state and changes it by records.

The contract, whatever the state is (groups, transactions, share groups):

- A partition's shard exists from `elect` (this node became its leader) to `resign` or `close`. Until the replay has
  ended, every operation raises CoordinatorLoadInProgressError. If the log cannot be replayed, they raise
  NotCoordinatorError, and the other partitions serve.
- Records reach a shard's `replay` once they are committed and in log order: first those of the log, then those of each
  write. So memory never runs ahead of what a restart would bring back, and what is answered is stored.
- Writes that arrive in one turn of the event loop, or while an append is under way, gather and leave as one batch:
  group commit without a timer.
- A write that deletes whatever it finds is planned when its turn has come (`begin_planned_write`): all writes before it
  are replayed by then, and none comes between what the plan sees and what it says.
- A write survives the cancellation of the request that asked for it: either its records are replayed into the shard
  or they are not in the log.
- Every write is settled, whatever is cancelled and when: waiting for one takes no longer than its appends, and may be
  shielded.

Kafka's counterpart is org.apache.kafka.coordinator.common.runtime.CoordinatorRuntime. It applies records at once and
rolls back when an append fails; this one applies them when the append is committed.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Generic

import trio

from ottla.coordinator.errors import CoordinatorLoadInProgressError, NotCoordinatorError
from ottla.coordinator.log import CoordinatorLog
from ottla.coordinator.partition import CoordinatorPartition, Life, Plan, Write
from ottla.coordinator.replay import CoordinatorRecord, Producer, ReplayBatch, S, replay_records
from ottla.kproto.records import EndTxnMarker
from ottla.metadata.image import PartitionChange
from ottla.runtime import remote_time
from ottla.runtime.supervisor import Tasks
from ottla.storage.clock import Clock

# A member of an enumeration costs as much to look up as a call, and this one is asked for with every request.
_SERVING: Final = Life.SERVING


class CoordinatorRuntime(Generic[S]):
    """Runs the shards of one internal topic on one broker. Its creator ends it with `close`.

    `nursery` runs the tasks that load and write, and one that closes the runtime if the nursery is cancelled: writes
    may wait for the end of a turn that does not come any more.
    """

    def __init__(
        self,
        name: str,
        *,
        log: CoordinatorLog,
        clock: Clock,
        nursery: Tasks,
        new_shard: Callable[[int], S],
        replay_batch: ReplayBatch[S] | None = None,
    ) -> None:
        """`replay_batch` takes the place of `replay_records` while a partition is loaded."""
        self._name = name
        self._log = log
        self._clock = clock
        self._nursery = nursery
        self._new_shard = new_shard
        self._replay_batch = replay_batch or replay_records
        self._partitions: dict[int, CoordinatorPartition[S]] = {}
        # They load one after the other, those that somebody has asked for first: most clients are answered long before
        # everything is loaded, and mostly one read of a log is in memory.
        self._unloaded: OrderedDict[int, CoordinatorPartition[S]] = OrderedDict()
        self._is_loading = False
        self._closed = trio.Event()
        self._is_watched = False

    # Life

    def loading(self) -> int:
        """How many partitions are still to be replayed."""
        return sum(partition.life is Life.LOADING for partition in self._partitions.values())

    @property
    def failed(self) -> list[int]:
        """The partitions that this node leads and whose state could not be loaded."""
        return [index for index, partition in sorted(self._partitions.items()) if partition.life is Life.FAILED]

    def follow(self, change: PartitionChange, node_id: int) -> None:
        """Lead what this node leads now, and nothing else.

        Several changes may come as one. If somebody else may have led in between, what is here is dropped and replayed:
        `Partition.apply` does not vouch for it either.
        """
        before, after = change.before, change.after
        leads = after.leader == node_id
        if not leads or (before is not None and after.leader_epoch > before.leader_epoch + 1):
            self.resign(change.partition)
        if leads:
            self.elect(change.partition)

    def elect(self, index: int) -> None:
        """This node leads the partition now: start to replay it. What failed before is tried again."""
        partition = self._partitions.get(index)
        if self._closed.is_set() or (partition is not None and partition.life is not Life.FAILED):
            return
        self._unloaded[index] = self._partitions[index] = CoordinatorPartition(
            self._name,
            index,
            self._new_shard(index),
            log=self._log,
            clock=self._clock,
            replay_batch=self._replay_batch,
            nursery=self._nursery,
        )
        if not self._is_watched:
            self._is_watched = True
            self._nursery.start_soon(self._close_if_cancelled)
        if not self._is_loading:
            self._is_loading = True
            self._nursery.start_soon(self._load_all)

    def resign(self, index: int) -> None:
        """This node no longer leads the partition: drop its state, and tell everyone who waits for it."""
        self._unloaded.pop(index, None)
        partition = self._partitions.pop(index, None)
        if partition is not None:
            partition.close("moved away")

    def close(self) -> None:
        """Lead nothing from now on: everyone who waits gets NotCoordinatorError, and so do later callers."""
        self._closed.set()
        self._unloaded.clear()
        while self._partitions:
            _, partition = self._partitions.popitem()
            partition.close("is no longer led: this broker is stopping")

    async def _close_if_cancelled(self) -> None:
        try:
            await self._closed.wait()
        finally:
            self.close()

    async def _load_all(self) -> None:
        while self._unloaded:
            _, partition = self._unloaded.popitem(last=False)
            if await self._load(partition):
                return
        self._is_loading = False

    async def _load(self, partition: CoordinatorPartition[S]) -> bool:
        """Load one; whether it had to wait for its replicas, so that another task has gone on with the rest."""
        has_waited = False

        def step_aside() -> None:
            nonlocal has_waited
            if not has_waited:
                has_waited = True
                self._nursery.start_soon(self._load_all)

        await partition.load(step_aside)
        return has_waited

    # Operations

    def shard(self, index: int) -> S:
        """The partition's state, for reading and for synchronous decisions.

        Raises NotCoordinatorError or CoordinatorLoadInProgressError.
        """
        return self._serving(index).shard

    async def confirm(self, partitions: Iterable[int]) -> None:
        """Return once it is certain that this broker still led those of these partitions that it coordinates when this
        was called. Raises NotCoordinatorError if that cannot be known.

        Needed before an answer that no write has confirmed: another broker may have taken over without this one having
        heard of it, and then the state in memory is out of date.
        """
        await self._log.confirm([index for index in partitions if index in self._partitions])

    def shards(self) -> list[S]:
        """All shards here, except those that failed. Raises CoordinatorLoadInProgressError while one is replayed."""
        failed = self.failed
        return [self._serving(index).shard for index in sorted(self._partitions) if index not in failed]

    def loaded_shards(self) -> list[S]:
        """The shards here whose replay has ended."""
        return [it.shard for _, it in sorted(self._partitions.items()) if it.life is Life.SERVING]

    def _serving(self, index: int) -> CoordinatorPartition[S]:
        partition = self._partitions.get(index)
        if partition is None:
            raise NotCoordinatorError(f"{self._name} partition {index} is not led here")
        if partition.life is _SERVING:
            return partition
        if partition.life is Life.LOADING:
            if index in self._unloaded:
                self._unloaded.move_to_end(index, last=False)
            raise CoordinatorLoadInProgressError(f"{partition} is being loaded")
        raise NotCoordinatorError(f"{partition} could not be loaded")

    async def write(
        self,
        index: int,
        records: Sequence[CoordinatorRecord],
        *,
        producer: Producer | None = None,
        shard: S | None = None,
    ) -> None:
        """Commit records, all or none; returns when they are committed and replayed into the shard.

        Raises CoordinatorError if they were not committed. Writes of one partition are committed in call order.
        `shard`, if given, is the one that the records were decided on: if the partition has moved away since, they are
        refused with NotCoordinatorError, even if it has come back.
        """
        await _wait_noted(self.begin_write(index, records, producer=producer, shard=shard))

    def begin_write(
        self,
        index: int,
        records: Sequence[CoordinatorRecord],
        *,
        producer: Producer | None = None,
        shard: S | None = None,
    ) -> Write:
        """The first half of `write`: the records have their place in the order of the partition's writes."""
        write = Write(records, producer)
        if records:
            self._submit(index, write, shard)
        else:
            write.settle(None)
        return write

    def begin_planned_write(self, index: int, plan: Plan, *, shard: S | None = None) -> Write:
        """Write what `plan` says once its turn has come. `wait` raises what the plan or the append raises.

        It is called when every write before it is replayed, and its records are appended before any other's. It is not
        called at all if the partition moves away first. More than one batch may have goes into several, in order: if an
        append fails those before it stay. (Kafka's expiry of offsets is not atomic either.)
        """
        write = Write(plan=plan)
        self._submit(index, write, shard)
        return write

    async def write_marker(self, index: int, marker: EndTxnMarker) -> None:
        """Commit the end of a producer's transaction, in order with the writes of that transaction."""
        write = Write(marker=marker)
        self._submit(index, write, None)
        await _wait_noted(write)

    def _submit(self, index: int, write: Write, shard: S | None) -> None:
        partition = self._serving(index)
        if shard is not None and shard is not partition.shard:
            raise NotCoordinatorError(f"{partition} has moved away and come back")
        partition.submit(write)


async def _wait_noted(write: Write) -> None:
    """Wait for a write, and count the time as time that a request waits for others."""
    with remote_time.Waiting():
        await write.wait()
