"""What a request is told in each state of a transactional id: the order of Kafka's checks, and EndTxn's whole table."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio

from ottla.coordinator.errors import (
    ConcurrentTransactionsError,
    CoordinatorError,
    InvalidProducerIdMappingError,
    InvalidTransactionStateError,
    ProducerFencedError,
)
from ottla.coordinator.transaction.decisions import needs_end, require_part
from ottla.coordinator.transaction.state import (
    EXHAUSTED_EPOCH,
    Partition,
    ProducerIdAndEpoch,
    Transaction,
    TransactionStatus,
)
from tests.coordinator.transaction.world import P0, V1, V2, World, running

S = TransactionStatus
ID, EPOCH = 7, 5
STATES = [S.EMPTY, S.ONGOING, S.PREPARE_COMMIT, S.PREPARE_ABORT, S.COMPLETE_COMMIT, S.COMPLETE_ABORT]
# In columns by the state: e for it has to be written, d for it is done already; w for ConcurrentTransactionsError,
# f for ProducerFencedError, i for InvalidTransactionStateError, m for InvalidProducerIdMappingError.
ENDS = {
    # version, commit, epoch beside the current
    (V1, True, -1): "f f f f f f",
    (V1, True, 0): "i e w w d i",
    (V1, True, 1): "f f f f f f",
    (V1, False, -1): "f f f f f f",
    (V1, False, 0): "i e w w i d",
    (V1, False, 1): "f f f f f f",
    (V2, True, -2): "f f w w f f",
    (V2, True, -1): "f f w w d i",
    (V2, True, 0): "i e w w i i",
    (V2, True, 1): "f f w w f f",
    (V2, False, -2): "f f w w f f",
    (V2, False, -1): "f f w w i d",
    (V2, False, 0): "e e w w e e",
    (V2, False, 1): "f f w w f f",
}
ERRORS = {
    ConcurrentTransactionsError: "w",
    ProducerFencedError: "f",
    InvalidTransactionStateError: "i",
    InvalidProducerIdMappingError: "m",
}


def at(status: TransactionStatus, **fields: Any) -> Transaction:
    return Transaction("x", ID, EPOCH, 60_000, status)._replace(**fields)


def told(producer: ProducerIdAndEpoch, *, commit: bool, version: int, **fields: Any) -> str:
    """What an end is told in each state, as in the table."""
    decided = []
    for status in STATES:
        try:
            needs = needs_end(at(status, **fields), producer, commit=commit, client_version=version)
            decided.append("e" if needs else "d")
        except CoordinatorError as error:
            decided.append(ERRORS[type(error)])
    return " ".join(decided)


@pytest.mark.parametrize(("version", "commit", "by"), ENDS)
def test_every_end_in_every_state(version: int, commit: bool, by: int) -> None:
    producer = ProducerIdAndEpoch(ID, EPOCH + by)
    assert told(producer, commit=commit, version=version) == ENDS[version, commit, by]


@pytest.mark.parametrize(("version", "expected"), [(V1, "m m m m m m"), (V2, "m m w w m m")])
@pytest.mark.parametrize("commit", [True, False])
def test_an_end_by_another_producer(version: int, commit: bool, expected: str) -> None:
    assert told(ProducerIdAndEpoch(ID + 1, EPOCH), commit=commit, version=version) == expected


@pytest.mark.parametrize(
    ("commit", "expected"), [(True, "f f w w d i"), (False, "f f w w i d")], ids=["commit", "abort"]
)
def test_a_retry_of_the_end_that_used_up_the_epochs(commit: bool, expected: str) -> None:
    """The producer has not heard of its new id."""
    former = ProducerIdAndEpoch(ID - 1, EXHAUSTED_EPOCH)
    fields = {"producer_epoch": 0, "previous_producer_id": ID - 1}
    assert told(former, commit=commit, version=V2, **fields) == expected
    older = former._replace(epoch=EXHAUSTED_EPOCH - 1)
    assert told(older, commit=commit, version=V2, **fields) == "m m w w m m"


@pytest.mark.parametrize("by", [-1, 1])
@pytest.mark.parametrize("status", STATES)
def test_verification_looks_at_the_producer_first(status: TransactionStatus, by: int) -> None:
    with pytest.raises(ProducerFencedError):
        require_part(at(status, partitions=frozenset({P0})), ProducerIdAndEpoch(ID, EPOCH + by), P0)
    with pytest.raises(InvalidProducerIdMappingError):
        require_part(at(status, partitions=frozenset({P0})), ProducerIdAndEpoch(ID + by, EPOCH), P0)


@pytest.fixture
async def ending(log: Any) -> AsyncIterator[World]:
    """The markers of a commit under transactions v2 are being written."""
    async with running(log) as world:
        producer = await world.init()
        await world.add(producer, version=V2)
        world.markers.gate = trio.Event()
        await world.end(producer, commit=True, version=V2)
        yield world


@pytest.mark.parametrize(
    "stranger", [ProducerIdAndEpoch(1_000, 0), ProducerIdAndEpoch(1_000, 9), ProducerIdAndEpoch(9, 1)]
)
async def test_while_the_markers_are_written_whoever_begins_waits(ending: World, stranger: ProducerIdAndEpoch) -> None:
    with pytest.raises(ConcurrentTransactionsError):
        await ending.init(stranger)
    with pytest.raises(ConcurrentTransactionsError):
        await ending.add(stranger)
    for commit in (True, False):
        with pytest.raises(ConcurrentTransactionsError):
            await ending.end(stranger, commit=commit, version=V2)
        with pytest.raises((ProducerFencedError, InvalidProducerIdMappingError)):
            await ending.end(stranger, commit=commit, version=V1)


async def test_an_abort_right_behind_a_commit_is_done_when_its_turn_comes(ending: World) -> None:
    """franz-go ends so whenever nothing was produced."""
    following = ProducerIdAndEpoch(1_000, 1)
    with pytest.raises(ConcurrentTransactionsError):
        await ending.end(following, commit=False, version=V2)
    ending.markers.gate.set()
    await ending.settle()
    assert ending.status_now() is S.COMPLETE_COMMIT
    assert await ending.end(following, commit=False, version=V2) == ProducerIdAndEpoch(1_000, 2)
    await ending.settle()
    assert ending.status_now() is S.COMPLETE_ABORT
    await ending.add(ProducerIdAndEpoch(1_000, 2), Partition("t", 3), version=V2)
