"""One run: everything is started, faults come, everything has to come back, and the histories are checked."""

from __future__ import annotations

import json
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, ParamSpec, TypeVar

import trio

from compat_tests.brokers.disks import Disks, can_mount
from compat_tests.brokers.laboratory import NODES, Laboratory
from compat_tests.brokers.node_faults import Faults
from compat_tests.brokers.process import HOST
from compat_tests.endurance.kill_loop_others import Compacted, Other, Transactions, consume_all
from compat_tests.endurance.replica_checks import REPLICAS, compare_replicas, wait_until_in_sync
from compat_tests.java import missing
from compat_tests.jepsen.java import JavaClients
from compat_tests.jepsen.surroundings import Real
from compat_tests.jepsen.workload import JAVA, PARTITIONS, TOPICS, Founder, clients
from ottla.simulation.cluster.checks.audit import audit
from ottla.simulation.cluster.clients.movers import with_moved
from ottla.simulation.cluster.histories.attempts import Partition
from ottla.simulation.cluster.world import SETTINGS

__all__ = ["KINDS", "Outcome", "run"]

KINDS: Final = (
    *("kill", "stop", "freeze", "kill_two", "kill_all", "freeze_two"),
    *("cut", "cut_two", "cut_from_all", "cut_from_clients", "cut_from_etcd", "black_hole", "delay", "reset"),
    *("kill_member", "freeze_member", "kill_etcd", "freeze_etcd", "fill"),
)
"""Each comes at least once."""

P = ParamSpec("P")
T = TypeVar("T")

DISK_BYTES: Final = 1 << 30
_PATIENCE_S: Final = 180.0
_READ_S: Final = 600.0
_REVIVED_EVERY_S: Final = 1.0
_TOLD_EVERY_S: Final = 60.0
_FULL: Final = ("No space left", "is full", "no room")


class Outcome(NamedTuple):
    """What came of it: a line for people, and what is wrong, in sentences."""

    summary: str
    wrong: list[str]


def run(seconds: float, seed: int, folder: Path, kinds: Sequence[str] = KINDS, *, pause_s: float = 2.0) -> Outcome:
    """Each of these kinds of faults once, then any of them until so many seconds are over; one each `pause_s`.

    `seed` decides what comes and when, but not what it meets. The logs of nodes and clients are in `folder`.
    """
    with ExitStack() as stack:
        size_bytes = DISK_BYTES if "fill" in kinds and can_mount() else 0
        config = {name: value for name, value in SETTINGS.items() if name.startswith("group.")}
        laboratory = Laboratory(
            folder,
            stack,
            config={**config, "ottla.log.format": "json"},
            clients_by_links=True,
            disk_bytes=size_bytes,
        )
        kinds = [kind for kind in kinds if kind != "fill" or size_bytes]
        return trio.run(partial(_Run(laboratory, folder, seed).live, seconds, kinds, pause_s))


class _Run:
    def __init__(self, laboratory: Laboratory, folder: Path, seed: int) -> None:
        self._laboratory = laboratory
        self._folder = folder
        self._seed = seed
        self._moments = random.Random(seed)
        self._bootstrap = ",".join(f"{HOST}:{link.port}" for link in laboratory.links.of_clients.values())
        self._faults = Faults(
            laboratory.cluster,
            laboratory.links,
            laboratory.etcd,
            self._moments,
            to_etcd=laboratory.to_etcd,
            disks=laboratory.disks,
        )
        self._came: Counter[str] = Counter()
        self._java: JavaClients | None = None
        self._others: list[Other] = []
        self._wrong: list[str] = []

    async def live(self, seconds: float, kinds: Sequence[str], pause_s: float) -> Outcome:
        """All of it."""
        began = time.monotonic()
        links = self._laboratory.links.of_clients
        real = Real({node: (HOST, links[node].port) for node in NODES}, self._seed, self._folder / "history.log")
        try:
            with real.scope:
                await self._work(real, seconds, kinds, pause_s)
                await self._audit(real)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is found
            traceback.print_exception(error)
            self._wrong.append(f"it fails: {error!r}")
        finally:
            with trio.CancelScope(shield=True):  # ended by the patience of what is stopped
                await trio.to_thread.run_sync(self._stop_others)
            real.close()
        self._wrong += [*real.findings, *self._told_by_nodes()]
        if real.findings:
            self._wrong += ["the last lines of the history:", *real.last]
        faults = ", ".join(f"{kind} {count}" for kind, count in sorted(self._came.items()))
        done = ", ".join(f"{type(other).__name__.lower()} {other.done}" for other in self._others)
        java = "no Java" if self._java is None else f"{self._java.done} of Java"
        summary = (
            f"{self._came.total()} faults in {time.monotonic() - began:.0f} s ({faults}); "
            f"{real.history.acknowledged} records acknowledged, {java}, {len(real.history.moves)} moves, {done}"
        )
        return Outcome(summary, self._wrong)

    async def _work(self, real: Real, seconds: float, kinds: Sequence[str], pause_s: float) -> None:
        await Founder(real, "founder").run()
        self._others = [Compacted(self._bootstrap, REPLICAS), Transactions(self._bootstrap, REPLICAS)]
        if missing() is None:
            self._java = JavaClients(self._bootstrap, self._folder)
        for other in self._others:
            other.start()
        async with trio.open_nursery() as crowd:
            for client in clients(real):
                crowd.start_soon(client.run)
            await self._befall(real, seconds, kinds, pause_s)
            real.note("all is well again")
            await _in_thread(self._laboratory.cluster.start)
            real.is_ending = True
            crowd.cancel_scope.deadline = trio.current_time() + _PATIENCE_S
        if crowd.cancel_scope.cancelled_caught:
            real.fail(f"clients have not ended within {_PATIENCE_S:g} s, and nothing is wrong")

    async def _befall(self, real: Real, seconds: float, kinds: Sequence[str], pause_s: float) -> None:
        """Let faults come, several at a time; all are over in the end."""
        async with trio.open_nursery() as watching:
            watching.start_soon(self._revive, real)
            watching.start_soon(self._tell_progress, real)
            until = trio.current_time() + seconds
            async with trio.open_nursery() as nursery:
                for kind in kinds:
                    await self._come(real, nursery, kind, pause_s)
                with trio.move_on_at(until):
                    while True:
                        await self._come(real, nursery, self._moments.choice(kinds), pause_s)
            watching.cancel_scope.cancel()

    async def _come(self, real: Real, nursery: trio.Nursery, kind: str, pause_s: float) -> None:
        await trio.sleep(self._moments.uniform(0, 2 * pause_s))
        real.note(f"fault {self._came.total()}: {kind}")
        self._came[kind] += 1
        nursery.start_soon(_in_thread, getattr(self._faults, kind))

    async def _revive(self, real: Real) -> None:
        while True:
            await trio.sleep(_REVIVED_EVERY_S)
            ended = set(NODES) - set(self._laboratory.cluster.running)
            if ended:
                real.note(f"nodes {sorted(ended)} do not run")
            await _in_thread(self._faults.revive)

    async def _tell_progress(self, real: Real) -> None:
        while True:
            await trio.sleep(_TOLD_EVERY_S)
            acknowledged = real.history.acknowledged
            print(f"{self._came.total()} faults, {acknowledged} records acknowledged", file=sys.stderr, flush=True)

    async def _audit(self, real: Real) -> None:
        """Nothing is wrong any more: what is there must be what was promised."""
        for topic in TOPICS:
            await _in_thread(wait_until_in_sync, self._laboratory.cluster, topic)
        await audit(real, with_moved(PARTITIONS), patience_s=_READ_S)
        await self._audit_java(real)
        for other in self._others:
            await _in_thread(other.stop)
            self._wrong += await _in_thread(other.wrong)
        for topic in (*TOPICS, *(other.NAME for other in self._others if isinstance(other, Transactions))):
            self._wrong += await _in_thread(compare_replicas, self._laboratory.cluster, topic)

    async def _audit_java(self, real: Real) -> None:
        java = self._java
        if java is None:
            return
        await _in_thread(java.stop_producing)
        records: dict[Partition, dict[int, bytes]] = {partition: {} for partition in JAVA}
        for index, offset, _, value in await _in_thread(consume_all, self._bootstrap, JAVA[0][0], len(JAVA)):
            records[JAVA[0][0], index][offset] = value
        java.tell(real.history, records)
        for partition in JAVA:
            real.history.check_log(partition, records[partition])
        ends = {index: max(found) + 1 for (_, index), found in records.items() if found}
        with trio.move_on_after(_PATIENCE_S) as patience:
            while java.consumed() != ends:  # noqa: ASYNC110 - another thread reads what it tells
                await trio.sleep(0.5)
        if patience.cancelled_caught:
            self._wrong.append(f"java's group has consumed {java.consumed()} of {ends}")
        self._wrong += java.wrong(records)

    def _stop_others(self) -> None:
        for other in self._others:
            other.stop()
        if self._java is not None:
            self._java.stop()

    def _told_by_nodes(self) -> Iterable[str]:
        """Errors that nodes have told of, except that a disk was full that was."""
        disks = self._laboratory.disks
        for node in NODES:
            with (self._laboratory.folder / f"node-{node}.log").open(errors="replace") as log:
                for line in log:
                    if _is_error(line) and not _is_excused(line, node, disks):
                        yield f"node {node}: {line[:1000].rstrip()}"


def _is_error(line: str) -> bool:
    try:
        told = json.loads(line)
    except ValueError:
        return "Traceback" in line
    return told["level"] in ("error", "critical") or "exception" in told


def _is_excused(line: str, node: int, disks: Disks | None) -> bool:
    return disks is not None and node in disks.were_full and any(text in line for text in _FULL)


async def _in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    return await trio.to_thread.run_sync(partial(function, *args, **kwargs))
