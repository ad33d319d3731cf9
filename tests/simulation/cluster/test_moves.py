"""What is found in histories of transactions that move records on, of which each has one thing wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ottla.simulation.cluster.histories.attempts import Attempt, Move, Partition, Transaction
from ottla.simulation.cluster.histories.moves import NOTHING, contradiction, wrong_offset

A, B = ("events", 0), ("events", 1)
_RECORDS = {partition: {at: f"{partition[1]}/{at}".encode() for at in range(10)} for partition in (A, B)}


def moving(name: str, *, outcome: bool | None = True, **offsets: tuple[int, int]) -> Move:
    """Records of partitions `A` and `B` are moved, from an offset to another; one that it has written is seen."""
    move = Move(name)
    move.outcome = outcome
    for named, (begins, ends) in offsets.items():
        partition = {"A": A, "B": B}[named]
        move.read[partition], move.written[partition] = begins, ends
        move.inputs[partition] = {at: value for at, value in _RECORDS[partition].items() if begins <= at < ends}
    move.outputs = [Attempt(name, ("moved", 0), 0, move)]
    return move


def found(*moves: Move, hidden: tuple[Move, ...] = ()) -> str:
    seen = {at: move.outputs[0].value for at, move in enumerate(moves)}
    logs: Mapping[Partition, Mapping[int, bytes]] = {**_RECORDS, ("moved", 0): seen}
    return contradiction([*moves, *hidden], logs)


def test_what_is_right() -> None:
    first, second = moving("1", A=(NOTHING, 3), B=(NOTHING, 2)), moving("2", A=(3, 5), B=(2, 4))
    assert found(second, first) == ""
    assert found(first, second, hidden=(moving("3", A=(3, 6)),)) == ""
    assert found() == ""


def test_a_lost_update() -> None:
    assert found(moving("1", A=(NOTHING, 3)), moving("2", A=(NOTHING, 4))) == (
        "lost update: 1 and 2 have both read -1 of ('events', 0)"
    )


def test_a_dirty_read() -> None:
    aborted = moving("2", A=(3, 5), outcome=False)
    assert "dirty read: 3 has read 5" in found(moving("1", A=(NOTHING, 3)), moving("3", A=(5, 6)), hidden=(aborted,))


def test_a_record_that_was_missed() -> None:
    move = moving("1", A=(NOTHING, 3))
    del move.inputs[A][1]
    assert found(move) == "1 has not moved what is in ('events', 0) from -1 to 3: [(1, b'0/1')]"


def test_a_cycle() -> None:
    """Each has read one partition before the other has written it."""
    first = moving("1", A=(NOTHING, 3), B=(2, 4))
    second = moving("2", A=(3, 5), B=(NOTHING, 2))
    assert found(first, second).startswith("no order of these transactions gives what they read: ")


def test_what_a_register_may_hold() -> None:
    moves = [moving("1", A=(NOTHING, 3)), moving("2", A=(3, 5), outcome=False), moving("3", A=(3, 6), outcome=None)]
    assert wrong_offset(moves, A, 3, least=3) == ""
    assert wrong_offset(moves, A, 6, least=3) == ""
    assert "no transaction has committed" in wrong_offset(moves, A, 5, least=3)
    assert "and 3 was committed" in wrong_offset(moves, A, NOTHING, least=3)


def appended(name: str, *places: tuple[Partition, int], writer: str) -> dict[tuple[Partition, int], Attempt]:
    """A transaction that has appended a record at each of these places."""
    transaction = Transaction(name, writer)
    return {place: Attempt(name, place[0], place[1], transaction) for place in places}


def order_found(*written: dict[tuple[Partition, int], Attempt], moves: Sequence[Move] = ()) -> str:
    logs: dict[Partition, dict[int, bytes]] = {A: {}, B: {}}
    attempts = {}
    for each in written:
        for (partition, offset), attempt in each.items():
            logs[partition][offset] = attempt.value
            attempts[attempt.value] = attempt
    return contradiction(moves, logs, attempts)


def test_transactions_of_one_writer_have_one_order_in_all_lists() -> None:
    first, second = appended("1", (A, 0), (B, 0), writer="t"), appended("2", (A, 1), (B, 1), writer="t")
    assert order_found(first, second) == ""
    crossed = appended("3", (A, 5), (B, 4), writer="t"), appended("4", (A, 4), (B, 5), writer="t")
    assert order_found(*crossed).startswith("no order of these transactions gives what they read: ")


def test_writers_need_not_agree_on_an_order() -> None:
    """Kafka lets them write at the same time."""
    assert order_found(appended("1", (A, 0), (B, 1), writer="t"), appended("2", (A, 1), (B, 0), writer="u")) == ""


def test_a_fenced_writer_that_has_written_amid_its_successor() -> None:
    fenced, successor = appended("1", (A, 0), (A, 2), writer="t"), appended("2", (A, 1), writer="t")
    assert "no order of these transactions" in order_found(fenced, successor)


def test_a_circle_of_reads_and_appends() -> None:
    """A move has read what a transaction has appended that comes behind the move in another list."""
    move = moving("2", A=(NOTHING, 1))
    move.writer = "t"
    later = appended("3", (A, 0), (B, 1), writer="t")
    (value,) = [attempt.value for (partition, _), attempt in later.items() if partition == A]
    move.inputs[A] = {0: value}
    (output,) = move.outputs = [Attempt("2", B, 2, move)]
    assert order_found({(B, 2): output}, later, moves=[move]) == ""
    assert order_found({(B, 0): output}, later, moves=[move]).startswith("no order of these")
