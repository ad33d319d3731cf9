"""What goes wrong in the cluster: each fault comes, lasts for some time, and is taken back; several may overlap."""

from __future__ import annotations

import errno
import itertools
from collections.abc import Awaitable, Callable, Collection
from random import Random
from typing import TYPE_CHECKING, Final

import trio

from ottla.simulation.cluster.checks.in_sync import view
from ottla.storage.disk.faults import Fault, FaultKind

if TYPE_CHECKING:
    from ottla.simulation.cluster.machines.machine import Machine
    from ottla.simulation.cluster.world import World

__all__ = ["FAULTS", "Faults"]

FAULTS: Final = (
    "kill",
    "power",
    "stop",
    "pause",
    "cut",
    "isolate",
    "slow",
    "reset",
    "store",
    "lease",
    "full",
    "clock",
    "replace",
    "untold",
    "roll",
    "fail",
)


_MOMENT_S: Final = 1.0
_JOINS_WITHIN_S: Final = 10.0
_ROLLS_ON_S: Final = 4.0
_DISTURBED: Final = 0.4
"""How many of the starts after a fault are disturbed."""
_WRONG_BY_MS: Final = 3_500_000
_FAILING: Final = (("pwritev",), ("fdatasync",), ("create",), ("pwritev", "fdatasync", "create"))
"""Of which operations of a disk some may fail."""


class Faults:
    """Chooses faults and brings them about. `unlucky` is the one machine that may lose power, or its disk.

    (Acknowledged records are on two machines, and need not survive that both lose power before they are synced.)

    When they come, what they are and what they hit is decided by the seed alone, not by what happens meanwhile: so one
    can be left out, and the others stay as they are.
    """

    def __init__(self, world: World, kinds: Collection[str], only: Collection[int] | None = None) -> None:
        self._world = world
        self._only = only
        self._rng = rng = Random(f"faults {world.seed}")
        # A node that is alone has nobody to copy back from what was on its disk, or was never synced.
        impossible = ("replace", "fail") if len(world.machines) == 1 else ()
        self._kinds = [kind for kind in FAULTS if kind in kinds and kind not in impossible]
        self._pause_s = rng.choice((0.5, 1.5, 4.0))
        self.unlucky = rng.choice(list(world.machines))

    async def run(self) -> None:
        """Until cancelled; then `heal` everything."""
        if not self._kinds:
            return
        world = self._world
        async with trio.open_nursery() as nursery:
            for number in itertools.count():
                await trio.sleep(self._rng.uniform(0, 2 * self._pause_s))
                kind = self._rng.choice(self._kinds)
                if self._only is None or number in self._only:
                    world.faults[number] = f"{trio.current_time():9.4f} fault {number}: {kind}"
                    world.note(f"fault {number}: {kind}")
                    rng = Random(f"fault {world.seed} {number}")
                    nursery.start_soon(getattr(self, f"_{kind}"), rng)

    def heal(self) -> None:
        """Nothing is wrong any more."""
        world = self._world
        world.note("all is well again")
        world.network.heal()
        for machine in world.machines.values():
            machine.go_on()
            machine.free_disk()
            machine.mend_disk()
            if machine.process is None:
                machine.start()
            elif machine.process.is_failing:
                world.nursery.start_soon(machine.start_anew)
            else:
                machine.process.store.heal()

    def _any(self, rng: Random) -> Machine:
        """Any machine, or the one that leads any partition: there more is at stake."""
        machines = self._world.machines
        chosen, is_leader, place = rng.choice(list(machines.values())), rng.random() < 0.5, rng.random()
        image = next((each.image for each in machines.values() if each.image is not None), None)
        if is_leader and image is not None:
            leaders = [state.leader for name in sorted(image.topics) for state in image.topics[name].partitions]
            if leaders:
                return machines.get(leaders[int(place * len(leaders))], chosen)
        return chosen

    def _two(self, rng: Random) -> list[str]:
        """The addresses of two hosts, of two machines in half of all cases."""
        machines = [machine.host.address for machine in self._world.machines.values()]
        is_between_machines = rng.random() < 0.5 and len(machines) > 1
        return rng.sample(machines if is_between_machines else list(self._world.network.hosts), 2)

    async def _moment(self, rng: Random) -> None:
        """Now, or when the next records are acknowledged: if that is too early, no other node has them yet."""
        if rng.random() < 0.5:
            with trio.move_on_after(_MOMENT_S):
                await self._world.history.acknowledgement.wait()

    async def _down(self, rng: Random, machine: Machine, end: Callable[[], Awaitable[None]]) -> None:
        """A process ends, and another one begins a while later."""
        process = machine.process
        if process is None or process.is_stopping:
            return
        with trio.CancelScope(shield=True):
            await end()
        await trio.sleep(rng.choice((0.0, 0.3, 2.0, 6.0)) * rng.uniform(0.5, 1.5))
        if machine.process is None:
            machine.start()
            await self._disturb(rng, machine)

    async def _disturb(self, rng: Random, machine: Machine) -> None:
        """A start, at times, finds no metadata store, or ends in its midst: what it has begun is for the next one."""
        process, how, seconds = machine.process, rng.random(), rng.choice((0.02, 0.1, 0.5)) * rng.uniform(0.2, 2)
        if process is None or how > _DISTURBED:
            return
        is_cut_off = how < _DISTURBED / 2
        if is_cut_off:
            self._world.note(f"node {machine.node_id} starts, and does not reach the metadata store")
            process.store.cut()
        await trio.sleep(seconds)
        if is_cut_off:
            process.store.heal()
        elif machine.process is process and not process.is_stopping:
            with trio.CancelScope(shield=True):
                await machine.kill()
            await trio.sleep(seconds)
            if machine.process is None:
                machine.start()

    async def _kill(self, rng: Random) -> None:
        await self._moment(rng)
        machine = self._any(rng)
        await self._down(rng, machine, machine.kill)

    async def _power(self, rng: Random) -> None:
        await self._moment(rng)
        machine = self._world.machines.get(self.unlucky)
        if machine is not None:
            await self._down(rng, machine, machine.lose_power)

    async def _replace(self, rng: Random) -> None:
        machine = self._world.machines.get(self.unlucky)
        if machine is not None:
            await self._down(rng, machine, machine.be_replaced)

    async def _full(self, rng: Random) -> None:
        machine = self._any(rng)
        machine.fill_disk(rng.choice((0, 500, 5_000)))
        await _last(rng, (0.5, 3.0, 6.0))
        machine.free_disk()

    async def _fail(self, rng: Random) -> None:
        """Operations of a disk fail, once or until somebody starts the process again: stores stop, and others lead."""
        machine = self._any(rng)
        operations, count, after = rng.choice(_FAILING), rng.choice((1, None)), rng.choice((0, 5, 30))
        is_in_order = rng.random() < 0.5
        process = machine.process
        if process is None or process.is_stopping:
            return
        machine.fail_disk(
            Fault(FaultKind.ERROR, frozenset(operations), errno=errno.EIO, after=rng.randint(0, after), count=count)
        )
        await _last(rng, (0.5, 3.0, 6.0))
        if machine.process is not process:
            return
        if not process.is_failing:
            machine.mend_disk()
            return
        can_stop = process.broker is not None and not self._world.pauses.is_held(machine.node_id)
        await self._down(rng, machine, machine.stop if is_in_order and can_stop else machine.kill)

    async def _clock(self, rng: Random) -> None:
        """The wall clock of a machine jumps, forward or back, but is never so wrong that it refuses records of now
        (`message.timestamp.after.max.ms`, an hour)."""
        machine = self._any(rng)
        by_ms = int(rng.choice((500, 10_000, 3_600_000)) * rng.uniform(-1, 1))
        ahead_ms = min(max(machine.clock.ahead_ms + by_ms, -_WRONG_BY_MS), _WRONG_BY_MS)
        self._world.note(f"the clock of node {machine.node_id} jumps by {ahead_ms - machine.clock.ahead_ms} ms")
        machine.clock.ahead_ms = ahead_ms

    async def _stop(self, rng: Random) -> None:
        """A process ends in order, and perhaps cannot hand over what it leads."""
        machine = self._any(rng)
        process, is_cut_off = machine.process, rng.random() < 0.4
        if process is None or process.broker is None or process.is_stopping:
            return
        if self._world.pauses.is_held(machine.node_id):
            return
        if is_cut_off:
            self._world.note(f"node {machine.node_id} does not reach the metadata store")
            process.store.cut()
        await self._down(rng, machine, machine.stop)

    async def _roll(self, rng: Random) -> None:
        """Each process ends in order and comes back, one after the other, perhaps each when the last is in sync."""
        is_patient = rng.random() < 0.7
        for machine in list(self._world.machines.values()):
            process = machine.process
            if process is None or process.broker is None or process.is_stopping:
                continue
            if self._world.pauses.is_held(machine.node_id):
                continue
            with trio.CancelScope(shield=True):
                await machine.stop()
            if machine.process is None:
                machine.start()
            with trio.move_on_after(_ROLLS_ON_S if is_patient else 0.0):
                await self._in_sync(machine.node_id)

    async def _in_sync(self, node_id: int) -> None:
        """Wait until a node is in sync in every partition that it has."""
        async with view(self._world.store) as metadata:
            while not all(
                node_id in state.isr
                for topic in metadata.image.topics.values()
                for state in topic.partitions
                if node_id in state.replicas
            ):
                await metadata.next()

    async def _pause(self, rng: Random) -> None:
        machine = self._any(rng)
        process = machine.process
        if process is not None and not process.is_stopping:
            machine.pause()
            await _last(rng, (0.2, 2.0, 8.0))
            machine.go_on()

    async def _cut(self, rng: Random) -> None:
        """Two hosts do not reach each other, perhaps in one direction only."""
        source, target = self._two(rng)
        is_both = rng.random() < 0.5
        self._world.note(f"nothing gets from {source} to {target}{', nor back' if is_both else ''}")
        self._world.network.block(source, target)
        if is_both:
            self._world.network.block(target, source)
        await self._reopen(rng)

    async def _isolate(self, rng: Random) -> None:
        """A machine does not reach the other machines or all other hosts, or is not reached by them, or both."""
        machine, network = self._any(rng), self._world.network
        machines = [each.host.address for each in self._world.machines.values()]
        others = list(network.hosts) if rng.random() < 0.5 else machines
        directions = rng.choice((3, 3, 1, 2))
        self._world.note(f"node {machine.node_id} is cut off from {len(others) - 1} hosts ({directions})")
        for other in others:
            if other != machine.host.address:
                if directions & 1:
                    network.block(machine.host.address, other)
                if directions & 2:
                    network.block(other, machine.host.address)
        if rng.random() < 0.5 and machine.process is not None:
            self._world.note(f"node {machine.node_id} is cut off from the metadata store as well")
            machine.process.store.cut()
        # At times so long that others lead what it led, and it learns of that late.
        await self._reopen(rng, (0.2, 2.0, 8.0))

    async def _reopen(self, rng: Random, seconds: tuple[float, ...] = (0.2, 2.0, 6.0)) -> None:
        await _last(rng, seconds)
        self._world.note("the network is whole again")
        self._world.network.heal()
        for machine in self._world.machines.values():
            if machine.process is not None:
                machine.process.store.heal()

    async def _slow(self, rng: Random) -> None:
        source, target = self._two(rng)
        self._world.network.delay(source, target, rng.choice((0.05, 0.5, 2.0)))
        self._world.note(f"it takes longer from {source} to {target}")
        await _last(rng, (0.5, 5.0))

    async def _reset(self, rng: Random) -> None:
        count = rng.randint(1, 5)
        self._world.note(f"{self._world.network.reset_some(count)} connections are reset")

    async def _store(self, rng: Random) -> None:
        """One node, or all, cannot reach the metadata store; or requests to it take longer."""
        machines = list(self._world.machines.values()) if rng.random() < 0.3 else [self._any(rng)]
        processes = [machine.process for machine in machines if machine.process is not None]
        if rng.random() < 0.3:
            self._world.note(f"nodes {[each.node_id for each in machines]} wait long for the metadata store")
            for process in processes:
                process.store.slow_down(0.5)
            await _last(rng, (2.0, 6.0))
            for process in processes:
                process.store.slow_down(0.0)
            return
        self._world.note(f"nodes {[each.node_id for each in machines]} do not reach the metadata store")
        for process in processes:
            process.store.cut()
        await _last(rng, (0.3, 2.0, 6.0))
        for process in processes:
            process.store.heal()
        self._world.note("they reach it again")

    async def _lease(self, rng: Random) -> None:
        """A session ends before its time."""
        leases = sorted(self._world.store._leases)
        if leases:
            lease = rng.choice(leases)
            self._world.note(f"lease {lease} is lost")
            await self._world.store.revoke_lease(lease)

    async def _untold(self, rng: Random) -> None:
        """A process comes back and is in sync again; the leader that asked for that is not told, and the two part."""
        machine = self._any(rng)
        if machine.process is None or machine.process.is_stopping:
            return
        with trio.CancelScope(shield=True):
            await machine.kill()
        await trio.sleep(rng.uniform(1, 3))
        if machine.process is None:
            machine.start()
        leader: Machine | None = None
        with trio.move_on_after(_JOINS_WITHIN_S):
            leader = await self._asked_for(machine.node_id)
        if leader is None or leader.process is None:
            return
        self._world.note(f"node {machine.node_id} has joined an in-sync set, and node {leader.node_id} is not told")
        leader.process.store.cut()
        self._world.network.block(machine.host.address, leader.host.address)
        if rng.random() < 0.5:
            self._world.network.block(leader.host.address, machine.host.address)
        await self._reopen(rng)

    async def _asked_for(self, node_id: int) -> Machine:
        """The leader of the next partition whose in-sync set a node joins."""
        async with view(self._world.store) as metadata:
            while True:
                for change in (await metadata.next()).changed_partitions:
                    before, after = change.before, change.after
                    leader = self._world.machines.get(after.leader)
                    if before is None or before.leader != after.leader or leader is None:
                        continue
                    if node_id in {*after.isr} - {*before.isr}:
                        return leader


async def _last(rng: Random, seconds: tuple[float, ...]) -> None:
    await trio.sleep(rng.choice(seconds) * rng.uniform(0.5, 1.5))
