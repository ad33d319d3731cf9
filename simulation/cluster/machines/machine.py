"""One machine of the cluster: its disk and its place in the network outlive the processes, each a whole `Node`."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from random import Random
from typing import TYPE_CHECKING, Protocol

import trio

from ottla.metadata.errors import DuplicateBrokerIdError
from ottla.metastore.errors import StoreUnavailableError
from ottla.runtime.supervisor import Supervisor
from ottla.server.broker import Broker
from ottla.server.main import Node, Ready
from ottla.settings.config import BrokerConfig
from ottla.simulation.cluster.machines.metadata import StoreLink
from ottla.simulation.cluster.machines.pauses import PROCESS
from ottla.storage.disk.simulated_disk import SimulatedDisk
from ottla.storage.errors import DiskFullError, StorageError

if TYPE_CHECKING:
    from ottla.metadata.image import MetadataImage
    from ottla.metastore.memory import MemoryMetadataStore
    from ottla.simulation.cluster.machines.network import Network
    from ottla.simulation.cluster.machines.pauses import Pauses
    from ottla.simulation.storage.workers import Workers
    from ottla.storage.disk.faults import Fault
    from ottla.tiers.object_store import ObjectStore

__all__ = ["PORT", "Machine", "Process", "is_of_full_disk"]

PORT = 9092
_STOP_S = 8.0
"""To hand over, to answer who waits, to give up the session."""
_SLOWEST_STOP_S = 60.0
_SUPERVISOR_S = 1.0


class MachineEnvironment(Protocol):
    """What a machine knows of the world that it stands in."""

    seed: int
    rng: Random
    workers: Workers
    network: Network
    store: MemoryMetadataStore
    pauses: Pauses
    nursery: trio.Nursery
    #: The way to the object store for a process of a node, which is its nth; None if there is no object store.
    objects: Callable[[int, int], ObjectStore] | None

    def note(self, text: str) -> None: ...

    def fail(self, finding: str, cause: BaseException | None = None) -> None: ...


class Clock:
    """A machine's wall clock, which is not quite right."""

    def __init__(self, ahead_ms: int) -> None:
        self.ahead_ms = ahead_ms

    def time_ms(self) -> int:
        return 1_700_000_000_000 + self.ahead_ms + int(trio.current_time() * 1000)


class Process:
    """A `Node` from its start to its end."""

    def __init__(self, machine: Machine, world: MachineEnvironment) -> None:
        self.disk = machine.disk
        self.store = StoreLink(world.store, world.rng)
        self.stack = machine.host.stack()
        objects = None if world.objects is None else world.objects(machine.node_id, machine.starts)
        self.node = Node(
            BrokerConfig(machine.settings),
            disk=self.disk,
            clock=machine.clock,
            metadata_store=self.store,
            object_store=objects,
            network=self.stack,
            run_blocking=world.workers.run,
            supervisor=Supervisor(is_strict=True),
            opened_at_start=0,
        )
        self.scope = trio.CancelScope()
        self.ended = trio.Event()
        self.broker: Broker | None = None
        self.is_dead = False
        self.is_stopping = False
        #: What was made to fail on its disk.
        self.failures: list[Fault] = []

    @property
    def is_failing(self) -> bool:
        """Whether an operation of its disk has failed: a store may have stopped for good."""
        return any(failure.struck for failure in self.failures)

    def started(self, ready: Ready | None = None) -> None:
        """Trio's task status: the node serves."""
        assert ready is not None
        self.broker = ready.broker


class Machine:
    """Runs one process at a time."""

    def __init__(self, world: MachineEnvironment, node_id: int, settings: Mapping[str, str]) -> None:
        self.world = world
        self.node_id = node_id
        self.host = world.network.host(f"10.0.0.{node_id}")
        self.clock = Clock(0)
        self.disk = self._empty_disk()
        self._flips = Random(f"flips {world.seed} {node_id}")
        off_ms = world.rng.choice((2_000, 2_000, 600_000))
        self.clock.ahead_ms = world.rng.randint(-off_ms, off_ms)
        self.settings = {
            **settings,
            "node.id": str(node_id),
            "log.dirs": "/data",
            "listeners": f"PLAINTEXT://{self.host.address}:{PORT}",
        }
        self.process: Process | None = None
        #: The disk had no room at some time in the life of this process.
        self.has_been_full = False
        #: What was made to fail on its disks.
        self._failures: list[Fault] = []
        self.starts = 0
        #: When the last process was killed; None if it ended by itself, or runs.
        self.killed_at_s: float | None = None
        #: Nobody starts it again.
        self.is_retired = False

    def _empty_disk(self) -> SimulatedDisk:
        rng, pause = self.world.rng, self.world.workers.pause
        seed, cold_probability = rng.getrandbits(32), rng.choice((0.0, 0.3))
        return SimulatedDisk(seed, cold_probability=cold_probability, pause=pause, clock=self.clock)

    @property
    def is_running(self) -> bool:
        return self.process is not None

    @property
    def broker(self) -> Broker | None:
        """What serves here, if anything does."""
        return None if self.process is None else self.process.broker

    @property
    def image(self) -> MetadataImage | None:
        broker = self.broker
        return None if broker is None else broker.metadata

    def start(self) -> None:
        """Begin a process, which serves a moment later; a retired machine begins none."""
        assert self.process is None
        if self.is_retired:
            return
        if not self.host.is_up:
            self.host.came_up()
        self.process = Process(self, self.world)
        self.starts += 1
        self.killed_at_s = None
        self.has_been_full = self.disk.capacity_bytes is not None
        self.world.note(f"node {self.node_id} starts")
        self.world.nursery.start_soon(self._live, self.process)

    async def _live(self, process: Process) -> None:
        PROCESS.set(self.node_id)
        failure: BaseException | None = None
        try:
            with process.scope:
                await process.node.serve(task_status=process)
        except* Exception as group:  # noqa: BLE001 - whatever it is, the process has ended
            failure = group
        finally:
            process.ended.set()
        if process.is_dead:
            return
        self._left(process)
        if failure is not None and not self._is_excused(failure):
            self.world.fail(f"the process of node {self.node_id} ended: {_first(failure)!r}", failure)
        if not process.is_stopping:
            self.world.note(f"node {self.node_id} has ended: {_first(failure) if failure else 'by itself'!r}")
            self.mend_disk()
            await trio.sleep(_SUPERVISOR_S)
            if self.process is None:
                self.start()

    def _is_excused(self, failure: BaseException) -> bool:
        """Whether a supervisor would start it again: it found no metadata store or room, or was taken for another."""
        if isinstance(failure, BaseExceptionGroup):
            return all(self._is_excused(each) for each in failure.exceptions)
        if self.has_been_full and is_of_full_disk(failure):
            return True
        if self.has_failed and isinstance(failure, OSError | StorageError):
            return True
        return isinstance(failure, StoreUnavailableError | DuplicateBrokerIdError)

    def _left(self, process: Process) -> None:
        process.stack.is_dead = True
        process.store.die()
        self.host.process_died()
        if self.process is process:
            self.process = None

    async def kill(self) -> None:
        """kill -9: what was written is there, and connections end."""
        self.world.note(f"node {self.node_id} is killed")
        await self._die(self.disk.crash())
        self.killed_at_s = trio.current_time()

    async def lose_power(self) -> None:
        """The machine is off: what was not synced may be gone, and nobody is told."""
        self.world.note(f"node {self.node_id} loses power")
        self.host.went_down()
        await self._die(self.disk.power_loss(flips=self._flips))

    async def be_replaced(self) -> None:
        """The machine is off, and another one with an empty disk has its place."""
        self.world.note(f"node {self.node_id} is replaced by a machine with an empty disk")
        self.host.went_down()
        self.disk.crash()
        await self._die(self._empty_disk())

    def fill_disk(self, room_bytes: int) -> None:
        """Leave only so many bytes of room."""
        self.world.note(f"node {self.node_id} has room for {room_bytes} bytes")
        self.has_been_full = True
        self.disk.capacity_bytes = self.disk._media.used_bytes + room_bytes

    def free_disk(self) -> None:
        """There is room."""
        if self.disk.capacity_bytes is not None:
            self.world.note(f"node {self.node_id} has room again")
            self.disk.capacity_bytes = None

    @property
    def has_failed(self) -> bool:
        """Whether an operation of a disk has failed here at any time."""
        return any(failure.struck for failure in self._failures)

    def fail_disk(self, failure: Fault) -> None:
        """Let operations of the disk fail until `mend_disk`, or until the process ends."""
        assert self.process is not None
        self.world.note(f"node {self.node_id} has a disk of which {', '.join(sorted(failure.operations))} fails")
        self._failures.append(self.disk.faults.add(failure))
        self.process.failures.append(failure)

    def mend_disk(self) -> None:
        """Nothing of the disk fails any more. What has failed is not undone: see `Process.is_failing`."""
        self.disk.faults.clear()

    async def start_anew(self) -> None:
        """Kill the process, and begin another one."""
        await self.kill()
        self.start()

    async def _die(self, disk: SimulatedDisk) -> None:
        process = self.process
        assert process is not None
        process.is_dead = True
        self.disk = disk
        self._left(process)
        self.world.pauses.release(self.node_id)
        process.scope.cancel()
        await process.ended.wait()

    async def stop(self) -> None:
        """Ask it to end in order, and wait for that."""
        process = self.process
        assert process is not None
        began = trio.current_time()
        self.world.note(f"node {self.node_id} stops")
        process.is_stopping = True
        process.node.stop()
        with trio.move_on_at(began + _STOP_S):
            await process.ended.wait()
        if not process.ended.is_set() and not self.host.is_unread:
            self.world.fail(f"node {self.node_id} has not stopped within {_STOP_S:g} s, and its answers are read")
        with trio.move_on_at(began + _SLOWEST_STOP_S):
            await process.ended.wait()
        if not process.ended.is_set():
            self.world.fail(f"node {self.node_id} has not stopped within {_SLOWEST_STOP_S:g} s")
        self.world.note(f"node {self.node_id} has stopped after {trio.current_time() - began:.3f} s")
        self.disk = self.disk.crash()

    def pause(self) -> None:
        self.world.note(f"node {self.node_id} stands still")
        self.world.pauses.hold(self.node_id)

    def go_on(self) -> None:
        if self.world.pauses.is_held(self.node_id):
            self.world.note(f"node {self.node_id} goes on")
            self.world.pauses.release(self.node_id)


def is_of_full_disk(error: BaseException | None) -> bool:
    """Whether it comes from a disk without room."""
    return isinstance(error, DiskFullError) or (isinstance(error, OSError) and error.errno == errno.ENOSPC)


def _first(failure: BaseException) -> BaseException:
    return _first(failure.exceptions[0]) if isinstance(failure, BaseExceptionGroup) else failure
