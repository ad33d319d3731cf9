"""What befalls the cluster: each fault comes, lasts its time, and is taken back; several may overlap."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import TYPE_CHECKING, Final

import trio

if TYPE_CHECKING:
    from simulation.cluster.machine import Machine
    from simulation.cluster.world import World

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
)


class Faults:
    """Chooses and does them. `unlucky` is the one machine that may lose power, or its disk.

    (Acknowledged records are on two machines, and need not survive that both lose power before they are synced.)
    """

    def __init__(self, world: World, kinds: Collection[str]) -> None:
        self._world = world
        self._rng = world.rng
        # Who is alone has nobody to get back from what was on the disk.
        left_out = ("replace",) if len(world.machines) == 1 else ()
        self._kinds = [kind for kind in FAULTS if kind in kinds and kind not in left_out]
        self._pause_s = world.rng.choice((0.5, 1.5, 4.0))
        self.unlucky = world.rng.choice(list(world.machines))

    async def run(self) -> None:
        """Until cancelled; then `heal` everything."""
        if not self._kinds:
            return
        async with trio.open_nursery() as nursery:
            while True:
                await trio.sleep(self._rng.uniform(0, 2 * self._pause_s))
                kind = self._rng.choice(self._kinds)
                nursery.start_soon(getattr(self, f"_{kind}"))

    def heal(self) -> None:
        """Nothing is wrong any more."""
        world = self._world
        world.note("all is well again")
        world.network.heal()
        for machine in world.machines.values():
            machine.go_on()
            machine.free_disk()
            if machine.process is None:
                machine.start()
            else:
                machine.process.store.heal()

    def _any(self) -> Machine:
        return self._rng.choice(list(self._world.machines.values()))

    async def _down(self, machine: Machine, end: Callable[[], Awaitable[None]]) -> None:
        """A process ends, and another one begins a while later."""
        process = machine.process
        if process is None or process.is_stopping:
            return
        with trio.CancelScope(shield=True):
            await end()
        await trio.sleep(self._rng.choice((0.0, 0.3, 2.0, 6.0)) * self._rng.uniform(0.5, 1.5))
        if machine.process is None:
            machine.start()

    async def _kill(self) -> None:
        machine = self._any()
        await self._down(machine, machine.kill)

    async def _power(self) -> None:
        machine = self._world.machines[self.unlucky]
        await self._down(machine, machine.lose_power)

    async def _replace(self) -> None:
        machine = self._world.machines[self.unlucky]
        await self._down(machine, machine.be_replaced)

    async def _full(self) -> None:
        machine = self._any()
        machine.fill_disk(self._rng.choice((0, 500, 5_000)))
        await self._last((0.5, 3.0, 6.0))
        machine.free_disk()

    async def _clock(self) -> None:
        """The wall clock of a machine jumps, forth or back."""
        machine = self._any()
        by_ms = int(self._rng.choice((500, 10_000, 3_600_000)) * self._rng.uniform(-1, 1))
        self._world.note(f"the clock of node {machine.node_id} jumps by {by_ms} ms")
        machine.clock.ahead_ms += by_ms

    async def _stop(self) -> None:
        machine = self._any()
        if machine.broker is not None and not self._world.pauses.is_held(machine.node_id):
            await self._down(machine, machine.stop)

    async def _pause(self) -> None:
        machine = self._any()
        process = machine.process
        if process is not None and not process.is_stopping:
            machine.pause()
            await self._last((0.2, 2.0, 8.0))
            machine.go_on()

    async def _cut(self) -> None:
        """Two hosts do not reach each other, perhaps in one direction alone."""
        hosts = list(self._world.network.hosts)
        source, target = self._rng.sample(hosts, 2)
        is_both = self._rng.random() < 0.5
        self._world.note(f"nothing gets from {source} to {target}{', nor back' if is_both else ''}")
        self._world.network.block(source, target)
        if is_both:
            self._world.network.block(target, source)
        await self._reopen()

    async def _isolate(self) -> None:
        """A machine reaches nobody, or no other machine, or only itself hears nothing."""
        machine, network = self._any(), self._world.network
        machines = [each.host.address for each in self._world.machines.values()]
        others = list(network.hosts) if self._rng.random() < 0.5 else machines
        directions = self._rng.choice((3, 3, 1, 2))
        self._world.note(f"node {machine.node_id} is cut off from {len(others) - 1} hosts ({directions})")
        for other in others:
            if other != machine.host.address:
                if directions & 1:
                    network.block(machine.host.address, other)
                if directions & 2:
                    network.block(other, machine.host.address)
        if self._rng.random() < 0.3 and machine.process is not None:
            self._world.note(f"node {machine.node_id} is cut off from the metadata store as well")
            machine.process.store.cut()
        await self._reopen()

    async def _reopen(self) -> None:
        await self._last((0.2, 2.0, 6.0))
        self._world.note("the network is whole again")
        self._world.network.heal()
        for machine in self._world.machines.values():
            if machine.process is not None:
                machine.process.store.heal()

    async def _slow(self) -> None:
        hosts = list(self._world.network.hosts)
        source, target = self._rng.sample(hosts, 2)
        self._world.network.delay(source, target, self._rng.choice((0.05, 0.5, 2.0)))
        self._world.note(f"it takes longer from {source} to {target}")
        await self._last((0.5, 5.0))

    async def _reset(self) -> None:
        count = self._rng.randint(1, 5)
        self._world.note(f"{self._world.network.reset_some(count)} connections are reset")

    async def _store(self) -> None:
        """A node does not reach the metadata store, or none does."""
        machines = list(self._world.machines.values()) if self._rng.random() < 0.3 else [self._any()]
        processes = [machine.process for machine in machines if machine.process is not None]
        self._world.note(f"nodes {[each.node_id for each in machines]} do not reach the metadata store")
        for process in processes:
            process.store.cut()
        await self._last((0.3, 2.0, 6.0))
        for process in processes:
            process.store.heal()
        self._world.note("they reach it again")

    async def _lease(self) -> None:
        """A session ends before its time."""
        leases = sorted(self._world.store._leases)
        if leases:
            lease = self._rng.choice(leases)
            self._world.note(f"lease {lease} is lost")
            await self._world.store.revoke_lease(lease)

    async def _last(self, seconds: tuple[float, ...]) -> None:
        await trio.sleep(self._rng.choice(seconds) * self._rng.uniform(0.5, 1.5))
