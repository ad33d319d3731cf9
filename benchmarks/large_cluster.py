"""A cluster larger than this machine in the simulator: what many partitions cost its nodes, and what their changes do.

    python -m benchmarks.large_cluster [--nodes 30] [--partitions 30000] [--topics 10] [--restarts 1]

All nodes run in this process, each with three replicas of its share of the partitions, on disks, a network and a
metadata store that are simulated. Nothing is produced. Step by step: the nodes start, the partitions are made and
followed, nothing happens for ten seconds, a node is killed and comes back, and nodes are stopped and started. Of each
step it tells the CPU of all nodes together, the simulated seconds, which do not pass while something computes, the
transactions of the metadata store and what was sent from node to node.
"""

from __future__ import annotations

import argparse
import logging
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import trio

from ottla.metadata.changes.topic_changes import NewTopic
from ottla.metadata.image import MetadataImage
from ottla.simulation.cluster.determinism import deterministic
from ottla.simulation.cluster.machines.epoll import simulated_epoll
from ottla.simulation.cluster.machines.machine import Machine
from ottla.simulation.cluster.world import World
from ottla.simulation.harness import scheduling

# One whose nodes have room in their caches: half of all seeds have none, so that files and whole fetches are tested.
_SEED: Final = 3
_REPLICAS: Final = 3
_SETTLED_S: Final = 3.0
_IDLE_S: Final = 10.0
_LIMIT_S: Final = 100_000.0
_LOOK_S: Final = 0.5


class Cluster:
    """The machines, and the table of what each step took."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.machines: list[Machine] = list(world.machines.values())

    @property
    def image(self) -> MetadataImage:
        """The latest metadata that any node knows."""
        images = (machine.image for machine in self.machines)
        return max((image for image in images if image is not None), key=lambda image: image.revision)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Measure it, and print its row."""
        cpu_s, now_s, sent = time.process_time(), trio.current_time(), self.world.network.sent_bytes
        revision = self.image.revision if any(machine.image for machine in self.machines) else 0
        yield
        cells = [
            name,
            f"{time.process_time() - cpu_s:.1f}",
            f"{trio.current_time() - now_s:.1f}",
            f"{self.image.revision - revision:,}",
            f"{(self.world.network.sent_bytes - sent) / 1e6:.1f}",
            f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6:,.0f}",
        ]
        print("| " + " | ".join(cells) + " |", flush=True)

    async def until(self, is_so: Callable[[], bool]) -> None:
        while not is_so():  # noqa: ASYNC110 - it is simulated time
            await trio.sleep(_LOOK_S)

    def all_serve(self) -> bool:
        return all(machine.broker is not None for machine in self.machines)

    def all_led(self) -> bool:
        """Every partition has a leader that lives, and every node that runs knows it."""
        image = self.image
        living = {machine.node_id for machine in self.machines if machine.is_running}
        led = all(state.leader in living for topic in image.topics.values() for state in topic.partitions)
        return led and all(machine.image is image or _knows(machine, image) for machine in self.machines)

    def all_in_sync(self) -> bool:
        image = self.image
        states = (state for topic in image.topics.values() for state in topic.partitions)
        return self.all_serve() and self.all_led() and all(len(state.isr) == len(state.replicas) for state in states)


def _knows(machine: Machine, image: MetadataImage) -> bool:
    return machine.image is None or machine.image.revision >= image.revision


async def live(world: World, partitions: int, topics: int, restarts: int) -> None:
    """All steps."""
    cluster = Cluster(world)
    async with trio.open_nursery() as world.nursery:
        with cluster.step(f"{len(cluster.machines)} nodes start"):
            for machine in cluster.machines:
                machine.start()
            await cluster.until(cluster.all_serve)
        with cluster.step(f"{partitions:,} partitions are made"):
            await _make(cluster, partitions, topics)
        with cluster.step(f"replicas begin to follow, {_SETTLED_S:g} s"):
            await trio.sleep(_SETTLED_S)
        with cluster.step(f"nothing happens for {_IDLE_S:g} s"):
            await trio.sleep(_IDLE_S)
        dead = cluster.machines[-1]
        with cluster.step("a node is killed, until all are led"):
            await dead.kill()
            await trio.sleep(_LOOK_S)
            await cluster.until(cluster.all_led)
        with cluster.step("it comes back, until all are in sync"):
            dead.start()
            await cluster.until(cluster.all_in_sync)
        for machine in cluster.machines[:restarts]:
            with cluster.step(f"node {machine.node_id} is stopped in order"):
                await machine.stop()
                await cluster.until(cluster.all_led)
            with cluster.step("… and is started, until all are in sync"):
                machine.start()
                await cluster.until(cluster.all_in_sync)
        world.nursery.cancel_scope.cancel()


async def _make(cluster: Cluster, partitions: int, topics: int) -> None:
    broker = cluster.machines[0].broker
    assert broker is not None
    for number in range(topics):
        wanted = partitions // topics
        await broker.controller.create_topic(NewTopic(f"t{number}", wanted, _REPLICAS))
    await cluster.until(cluster.all_in_sync)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=30)
    parser.add_argument("--partitions", type=int, default=30_000)
    parser.add_argument("--topics", type=int, default=10)
    parser.add_argument("--restarts", type=int, default=1, help="how many nodes are restarted, one after the other")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    world = World(_SEED, nodes=options.nodes)

    async def run() -> None:
        world.pauses.install()
        with world.scope:
            await live(world, options.partitions, options.topics, options.restarts)

    print("| step | CPU of all nodes, s | simulated s | metadata transactions | sent, MB | memory of all, MB |")
    print("|---|---:|---:|---:|---:|---:|")
    with deterministic(_SEED, world.workers), simulated_epoll(world.network):
        scheduling.run(run, _SEED, limit_s=_LIMIT_S)
    if world.finding:
        raise RuntimeError(world.finding)


if __name__ == "__main__":
    main()
