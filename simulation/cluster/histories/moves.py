"""Whether transactions that move records on are serializable: what each reads and writes, as Elle looks at registers.

A group's committed offset of a partition is a register. A transaction reads it, takes the records that lie from there
on, writes them elsewhere, and writes the register. So the committed ones form a chain for each partition, and no cycle
over all of them; and each record is moved once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from types import MappingProxyType

from ottla.simulation.cluster.histories.attempts import Attempt, Move, Partition
from ottla.simulation.cluster.histories.lists import order_of_appends, order_of_reads

__all__ = ["NOTHING", "contradiction", "wrong_offset"]

NOTHING = -1
"""What a register holds before anything was written to it."""


def wrong_offset(moves: Sequence[Move], partition: Partition, offset: int, least: int) -> str:
    """Why a register cannot hold this when it is read after `least` was acknowledged; empty if it can."""
    if offset < least:
        return f"offset {offset} of {partition} is found, and {least} was committed"
    if offset == NOTHING or any(
        move.written.get(partition) == offset and move.outcome is not False for move in moves if move.written
    ):
        return ""
    return f"offset {offset} of {partition} is found, which no transaction has committed"


def contradiction(
    moves: Sequence[Move],
    committed: Mapping[Partition, Mapping[int, bytes]],
    attempts: Mapping[bytes, Attempt] = MappingProxyType({}),
) -> str:
    """What of these moves contradicts what readers of committed records see in the end; empty if nothing does.

    Where `attempts` say which transaction has appended what, those appends and the moves must fit into one order.
    """
    visible = {value for records in committed.values() for value in records.values()}
    done = [move for move in moves if any(output.value in visible for output in move.outputs)]
    later = order_of_appends(attempts, committed)
    for move, read in order_of_reads(attempts, done).items():
        later[move] |= read
    for partition in sorted({partition for move in done for partition in move.read}):
        reached, before = NOTHING, None
        for move in sorted((it for it in done if partition in it.read), key=lambda it: it.read[partition]):
            begins, ends = move.read[partition], move.written[partition]
            if begins < reached:
                return f"lost update: {before and before.name} and {move.name} have both read {begins} of {partition}"
            if begins > reached:
                return f"dirty read: {move.name} has read {begins} of {partition}, and {reached} was committed last"
            there = {at: value for at, value in committed[partition].items() if begins <= at < ends}
            if there != move.inputs[partition]:
                missed = sorted(there.items() - move.inputs[partition].items())
                return f"{move.name} has not moved what is in {partition} from {begins} to {ends}: {missed}"
            if before is not None:
                later[move].add(before)
            reached, before = ends, move
    try:
        TopologicalSorter(later).prepare()
    except CycleError as error:
        return f"no order of these transactions gives what they read: {', '.join(it.name for it in error.args[1])}"
    return ""
