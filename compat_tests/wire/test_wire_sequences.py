"""Which sequence a producer may send after one of its batches was refused: what is expected is Apache Kafka's answer.

A batch that is to open a transaction in a partition leaves a token there until a transactional batch or a marker of
its producer is written (KIP-890). The token knows the lowest sequence of the latest epoch that was tried, and what is
higher is refused, whatever its epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from compat_tests.wire.transaction_wire import Peer, epoch

FENCED, NOT_IN_IT, TOO_HIGH = "INVALID_PRODUCER_EPOCH", "TRANSACTION_ABORTABLE", "OUT_OF_ORDER_SEQUENCE_NUMBER"


@pytest.fixture
def peer(new_peer: Callable[[], Peer]) -> Peer:
    """In its second epoch."""
    peer = new_peer()
    assert peer.init() == "NONE"
    return peer


def test_a_lower_sequence_that_was_refused_comes_first(peer: Peer) -> None:
    plain = partial(peer.produce, is_transactional=False)
    assert [peer.produce(sequence=each) for each in (5, 3)] == [NOT_IN_IT] * 2
    assert [plain(sequence=each) for each in (4, 3, 4)] == [TOO_HIGH, "NONE", TOO_HIGH]


def test_a_refused_batch_of_a_later_epoch_counts(peer: Peer) -> None:
    later = epoch(peer.identity, 1)
    assert peer.produce(sequence=0, identity=later) == FENCED
    assert peer.produce(sequence=1, is_transactional=False) == TOO_HIGH


def test_a_refused_batch_of_an_earlier_epoch_counts_where_no_later_one_is_known(peer: Peer) -> None:
    earlier = epoch(peer.identity, -1)
    assert peer.produce(sequence=0, identity=earlier) == FENCED
    assert [peer.produce(sequence=each, is_transactional=False) for each in (1, 0)] == [TOO_HIGH, "NONE"]


@pytest.mark.parametrize("version", [3, 8, 11, 12])
def test_a_fenced_producer_does_not_disturb_the_next(peer: Peer, version: int) -> None:
    earlier = epoch(peer.identity, -1)
    assert peer.add(0) == "NONE"
    assert peer.produce() == "NONE"
    assert peer.produce(version=version, sequence=0, identity=earlier) == FENCED
    # The log knows more of it than the coordinator, which is not asked.
    assert peer.produce(version=version, sequence=0, identity=earlier, transactional_id="unheard") == FENCED
    assert peer.produce() == "NONE"


def test_a_later_epoch_that_was_tried_disturbs_an_open_transaction(peer: Peer) -> None:
    assert peer.add(0) == "NONE"
    assert peer.produce() == "NONE"
    assert peer.produce(sequence=0, identity=epoch(peer.identity, 1)) == FENCED
    assert peer.produce() == TOO_HIGH
    assert peer.end(commit=False) == "NONE"
    assert peer.settle() == "CompleteAbort"
    assert peer.add(0) == "NONE"
    assert peer.produce(sequence=1) == "NONE"


def test_the_first_batch_that_was_tried_says_whether_sequences_begin_at_zero(peer: Peer) -> None:
    assert peer.produce(version=8, sequence=5) == "INVALID_TXN_STATE"
    assert peer.produce(version=12, sequence=5) == "NONE"


def test_the_log_start_of_a_fenced_batch_is_not_told(peer: Peer) -> None:
    assert peer.produce(sequence=0, is_transactional=False) == "NONE"
    assert peer.produce(sequence=0, identity=epoch(peer.identity, -1)) == FENCED
    assert peer.log_start_offset == -1
