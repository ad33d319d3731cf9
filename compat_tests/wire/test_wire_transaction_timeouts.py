"""Transactions that time out, and what their producers are told when they come back: byte by byte, beside Apache Kafka.

The abort of a transaction that timed out raises the epoch. Under transactions v2, a level that the whole cluster has,
a producer that names the epoch before is told the raised one; before v2 it is fenced.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from typing import Final

import pytest

from compat_tests.wire.transaction_wire import PATIENCE_S, Identity, Peer, epoch, name
from compat_tests.wire.wire import Wire
from ottla.kproto.messages.cluster import update_features as uf
from ottla.kproto.messages.transactions import init_producer_id as ip

TIMEOUT_MS: Final = 1_000
LAST_GIVEN_EPOCH: Final = 32_766
#: Of the requests that use up a producer's epochs.
IN_FLIGHT: Final = 200

BEFORE: dict[str, Callable[[Peer], None]] = {
    "nothing": lambda peer: None,
    "a recovery": lambda peer: settle(peer, peer.init(peer.identity)),
    "a commit, v1": lambda peer: settle(peer, peer.add(0), peer.end(commit=True, version=4)),
    "a commit, v2": lambda peer: settle(peer, peer.add(0), peer.end(commit=True, version=5)),
    "an abort, v1": lambda peer: settle(peer, peer.add(0), peer.end(commit=False, version=4)),
    "an abort, v2": lambda peer: settle(peer, peer.add(0), peer.end(commit=False, version=5)),
    "a recovery and a commit, v1": lambda peer: settle(
        peer, peer.init(peer.identity), peer.add(0), peer.end(commit=True, version=4)
    ),
}
BEGIN: dict[str, Callable[[Peer], str]] = {
    "v1": lambda peer: peer.add(0),
    "v2": lambda peer: peer.produce(version=12, sequence=0),
}


def settle(peer: Peer, *answers: str) -> None:
    assert set(answers) == {"NONE"}
    peer.settle()


@contextmanager
def level(wire: Wire, of_the_cluster: int) -> Iterator[None]:
    """The cluster's transaction.version, until the end of the block."""

    def update(to: int, upgrade_type: int) -> None:
        feature = uf.FeatureUpdateKey(feature="transaction.version", max_version_level=to, upgrade_type=upgrade_type)
        assert wire.call(uf.UpdateFeaturesRequest(timeout_ms=5_000, feature_updates=[feature]), 2).error_code == 0

    if of_the_cluster == 2:
        yield
        return
    update(of_the_cluster, 2)
    try:
        yield
    finally:
        update(2, 1)


def begin(peer: Peer, how: str) -> None:
    """Begin a transaction that will time out."""
    assert peer.init(peer.identity, timeout_ms=TIMEOUT_MS) == "NONE"
    assert BEGIN[how](peer) == "NONE"


def until_aborted(peer: Peer) -> None:
    deadline = time.monotonic() + 2 * PATIENCE_S
    while (state := peer.describe().transaction_state) != "CompleteAbort":
        assert time.monotonic() < deadline, state
        time.sleep(0.05)


def recover(peer: Peer, asked: Identity, version: int) -> str:
    """What InitProducerId answers, with the epoch beside the one that the transaction had."""
    began = peer.identity
    told = peer.init(asked, version=version)
    answer = f"{peer.identity.epoch - began.epoch:+}" if told == "NONE" else told
    if told == "NONE":
        assert peer.identity.producer_id == began.producer_id
    peer.identity = began
    return answer


FENCED = {3: "INVALID_PRODUCER_EPOCH", 4: "PRODUCER_FENCED", 5: "PRODUCER_FENCED"}


@pytest.mark.parametrize("of_the_cluster", [1, 2])
def test_who_recovers_after_a_timeout(wire: Wire, new_peer: Callable[[], Peer], of_the_cluster: int) -> None:
    told, expected = {}, {}
    with level(wire, of_the_cluster):
        peers = {}
        for case in product(BEFORE, BEGIN, (3, 4, 5), (-1, 0, 1)):
            before, how, _, _ = case
            peers[case] = peer = new_peer()
            BEFORE[before](peer)
            begin(peer, how)
        for case, peer in peers.items():
            _, _, version, by = case
            until_aborted(peer)
            told[case] = [recover(peer, epoch(peer.identity, by), version) for _ in range(2)]
            answer = {-1: FENCED[version], 0: "+1" if of_the_cluster == 2 else FENCED[version], 1: "+2"}[by]
            expected[case] = [answer, answer]
    assert told == expected


def use_up_epochs(peer: Peer) -> None:
    """Initialize until the producer has the last epoch that is ever given."""
    request = ip.InitProducerIdRequest(
        transactional_id=peer.transactional_id, transaction_timeout_ms=TIMEOUT_MS, producer_id=-1, producer_epoch=-1
    )
    while (ahead := min(IN_FLIGHT, LAST_GIVEN_EPOCH - peer.identity.epoch)) > 0:
        peer.wire.send_together(*[(request, 4)] * ahead)
        for _ in range(ahead):
            answer = peer.wire.receive(request.API_KEY, 4)
            if answer.error_code == 0:
                peer.identity = Identity(answer.producer_id, answer.producer_epoch)
            else:
                assert name(answer.error_code) == "CONCURRENT_TRANSACTIONS"


# It takes 33,000 requests. What the coordinator does then, every run sees in tests/coordinator.
@pytest.mark.groups
def test_a_timeout_in_the_last_epoch(peer: Peer) -> None:
    use_up_epochs(peer)
    former = peer.identity
    assert peer.add(0) == "NONE"
    until_aborted(peer)
    assert peer.end(commit=False, version=5, identity=former) == "NONE"
    following = peer.identity
    assert following.producer_id != former.producer_id
    assert following.epoch == 0
    assert peer.init(former) == "NONE"
    assert peer.identity == following
    assert peer.init(former) == "PRODUCER_FENCED"  # what was there before is known for one step only
    assert peer.add(0) == "NONE"
    assert peer.init(former) == "PRODUCER_FENCED"
    assert peer.end(commit=False, version=4, identity=former) == "INVALID_PRODUCER_ID_MAPPING"
    assert peer.end(commit=False, version=5) == "NONE"
    assert peer.identity == epoch(following, 1)
