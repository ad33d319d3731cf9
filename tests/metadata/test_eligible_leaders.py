"""Eligible leaders beside the in-sync set: no committed record is lost when one of them leads."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from random import Random

import pytest

from ottla.metadata.changes.eligible_leaders import may_forget, reconsider, shown, with_eligible
from ottla.metadata.changes.partition_changes import (
    PartitionUpdate,
    elect_unclean,
    follow_live,
    hand_over,
    is_unclean,
    leave,
    with_isr,
)
from ottla.metadata.image import NO_LEADER, PartitionState
from ottla.metadata.keys import decode_partition, encode_partition

STATE = PartitionState(leader=1, replicas=(1, 2, 3), isr=(1, 2, 3), leader_epoch=5, partition_epoch=9)


def changed(state: PartitionState, update: PartitionUpdate, count: int | None = 2) -> PartitionState:
    """As a transaction changes it; `count` is what min.insync.replicas asks for, None without the feature."""
    after = update(state)
    return state if after == state else with_eligible(state, after, count)


def living(*brokers: int, unclean: bool = False) -> PartitionUpdate:
    return partial(follow_live, live=frozenset(brokers), unclean=unclean)


class TestWhoIsEligible:
    def test_nobody_while_enough_are_in_sync(self) -> None:
        assert changed(STATE, living(1, 2)).elr == ()

    def test_who_leaves_when_too_few_are_left(self) -> None:
        two = changed(STATE, living(1, 2))
        one = changed(two, living(1))
        assert (one.leader, one.isr, one.elr) == (1, (1,), (2,))

    def test_all_who_leave_at_once(self) -> None:
        assert changed(STATE, living(1)).elr == (2, 3)

    def test_nobody_any_more_when_enough_are_back(self) -> None:
        one = changed(STATE, living(1))
        two = changed(one, lambda state: with_isr(state, (1, 3)))
        assert (two.isr, two.elr) == ((1, 3), ())

    def test_with_one_in_sync_enough_it_is_nobody(self) -> None:
        assert changed(STATE, living(1), 1).elr == ()

    def test_no_more_are_asked_for_than_there_are_replicas(self) -> None:
        pair = STATE._replace(replicas=(1, 2), isr=(1, 2))
        assert changed(pair, partial(hand_over, broker=2, live={1, 2}), 5).elr == (2,)
        assert changed(pair, lambda state: with_isr(state, (1, 2)), 5).elr == ()

    def test_without_the_feature_it_is_nobody(self) -> None:
        assert changed(STATE, living(1), None).elr == ()
        assert changed(STATE, living(), None).last_known_elr == ()

    def test_a_smaller_setting_lets_the_leader_go_on(self) -> None:
        one = changed(STATE, living(1))
        assert not may_forget(one, 2)
        assert may_forget(one, 1)
        assert may_forget(one, None)
        after = changed(one, reconsider, 1)
        assert (after.elr, after.partition_epoch) == ((), one.partition_epoch + 1)


class TestElections:
    def test_an_eligible_one_leads_when_all_in_sync_are_dead(self) -> None:
        one = changed(STATE, living(1))
        after = changed(one, living(2))
        assert (after.leader, after.isr, after.elr) == (2, (2,), (1, 3))
        assert not is_unclean(one, after)
        assert after.leader_epoch == one.leader_epoch + 1

    def test_nobody_leads_while_neither_lives(self) -> None:
        two = changed(STATE, living(1, 2))
        one = changed(two, living(1))
        gone = changed(one, living(3))
        assert (gone.leader, gone.isr, gone.elr, gone.last_known_elr) == (NO_LEADER, (1,), (2,), (1,))
        assert changed(gone, living(3)) is gone
        assert changed(gone, living(2, 3)).leader == 2
        back = changed(gone, living(1, 3))
        assert (back.leader, back.elr, back.last_known_elr) == (1, (2,), ())

    def test_an_unclean_election_ends_it(self) -> None:
        gone = changed(changed(changed(STATE, living(1, 2)), living(1)), living())
        after = changed(gone, living(3, unclean=True))
        assert (after.leader, after.isr, after.elr) == (3, (3,), ())
        assert is_unclean(gone, after)
        asked = changed(gone, partial(elect_unclean, live={3}))
        assert (asked.leader, asked.isr, asked.elr) == (3, (3,), ())

    def test_an_unclean_election_prefers_who_is_eligible(self) -> None:
        gone = changed(changed(changed(STATE, living(1, 2)), living(1)), living())
        for update in (living(2, 3, unclean=True), partial(elect_unclean, live={2, 3})):
            after = changed(gone, update)
            assert (after.leader, after.isr, after.elr) == (2, (2,), (1,))

    def test_who_has_lost_its_records_is_not_eligible(self) -> None:
        one = changed(STATE, living(1))
        assert changed(one, partial(leave, broker=2, live={1})).elr == (3,)
        assert changed(changed(STATE, living(1, 2)), partial(leave, broker=2, live={1, 2})).elr == ()

    def test_when_the_last_in_sync_has_lost_its_records_the_eligible_take_its_place(self) -> None:
        one = changed(STATE, living(1))
        after = changed(one, partial(leave, broker=1, live={3}))
        assert (after.leader, after.isr, after.elr) == (3, (3,), (2,))
        waiting = changed(one, partial(leave, broker=1, live={1}))
        assert (waiting.leader, waiting.isr, waiting.elr) == (NO_LEADER, (2, 3), ())
        assert changed(waiting, living(1)) is waiting
        assert changed(waiting, living(1, 3)).leader == 3

    def test_the_very_last_stays_as_nobody_has_more(self) -> None:
        alone = PartitionState(leader=1, replicas=(1, 2, 3), isr=(1,))
        assert changed(alone, partial(leave, broker=1, live={2})) is alone


def test_clients_are_told_an_empty_set_where_nobody_of_it_lives() -> None:
    gone = changed(changed(changed(STATE, living(1, 2)), living(1)), living())
    assert shown(gone, enabled=True) == ((), (1, 2))
    assert shown(gone, enabled=False) == ((1,), (2,))
    assert shown(STATE, enabled=True) == ((1, 2, 3), ())


@pytest.mark.parametrize("state", [STATE, STATE._replace(leader=NO_LEADER, isr=(1,), elr=(2,), last_known_elr=(1,))])
def test_a_state_is_stored_whole_and_what_is_empty_takes_no_room(state: PartitionState) -> None:
    stored = encode_partition(state, {})
    assert decode_partition(stored, {}) == state
    assert (b"elr" in stored) == bool(state.elr)


# Whatever happens, what was committed stays ---------------------------------------------------------------------------


@dataclass
class Broker:
    """A replica: its log is the leader epoch of each record, and a number."""

    log: list[tuple[int, int]] = field(default_factory=list)
    high_watermark: int = 0
    known: PartitionState = STATE
    progress: dict[int, int] = field(default_factory=dict)
    #: Which process of each follower has told that, and which this one is (KIP-903).
    seen: dict[int, int] = field(default_factory=dict)
    incarnation: int = 0
    joining: tuple[int, ...] = ()
    min_in_sync: int = 2


class History:
    """Three replicas whose leaders, in-sync sets and settings change at random, and reach each broker at its time.

    Brokers that are fenced may run on. `min.insync.replicas` is another one on each broker, and another one for each
    change of the state. Elections are clean.
    """

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._state = STATE
        self._live = {1, 2, 3}
        self._brokers = {node_id: Broker(min_in_sync=self._random.choice((1, 2, 2, 3))) for node_id in STATE.replicas}
        self._committed: list[tuple[int, int]] = []
        self._number = 0
        self.elections_of_eligible = 0

    def run(self, steps: int) -> None:
        choices = (
            [self._append] * 4 + [self._fetch] * 6 + [self._commit] * 5 + [self._learn] * 8 + [self._change_isr] * 3
            + [self._fence, self._fence, self._return, self._return, self._lose, self._reconfigure, self._elect]
        )  # fmt: skip
        for _ in range(steps):
            self._random.choice(choices)()

    def _any(self) -> int:
        return self._random.choice(STATE.replicas)

    def _leads(self, node_id: int) -> bool:
        return self._brokers[node_id].known.leader == node_id

    def _append(self) -> None:
        node_id = self._any()
        if self._leads(node_id):
            self._number += 1
            broker = self._brokers[node_id]
            broker.log.append((broker.known.leader_epoch, self._number))

    def _fetch(self) -> None:
        follower_id = self._any()
        follower = self._brokers[follower_id]
        leader_id = follower.known.leader
        if leader_id in (NO_LEADER, follower_id):
            return
        leader = self._brokers[leader_id]
        if not self._leads(leader_id) or leader.known.leader_epoch != follower.known.leader_epoch:
            return
        same = 0
        while same < min(len(leader.log), len(follower.log)) and leader.log[same] == follower.log[same]:
            same += 1
        del follower.log[same:]
        leader.progress[follower_id] = len(follower.log)
        leader.seen[follower_id] = follower.incarnation
        follower.log += leader.log[same : same + self._random.randint(0, 3)]
        follower.high_watermark = min(max(follower.high_watermark, leader.high_watermark), len(follower.log))

    def _commit(self) -> None:
        """As `Partition.advance_high_watermark`."""
        node_id = self._any()
        broker = self._brokers[node_id]
        known = broker.known
        if not self._leads(node_id) or len(known.isr) < min(broker.min_in_sync, len(known.replicas)):
            return
        counted = {*known.isr, *broker.joining, *known.elr} - {node_id}
        end = min([len(broker.log), *(broker.progress.get(it, 0) for it in counted)])
        if end > broker.high_watermark:
            broker.high_watermark = end
            if end > len(self._committed):
                assert broker.log[: len(self._committed)] == self._committed
                self._committed = broker.log[:end]
            else:
                assert broker.log[:end] == self._committed[:end]

    def _learn(self) -> None:
        """A broker hears of the state of now, as `Partition.apply`."""
        node_id = self._any()
        broker = self._brokers[node_id]
        if self._state.leader_epoch != broker.known.leader_epoch:
            broker.progress, broker.joining = {}, ()
        broker.known = self._state
        if self._leads(node_id):
            assert broker.log[: len(self._committed)] == self._committed, "a leader lacks what was committed"

    def _change_isr(self) -> None:
        node_id = self._any()
        broker = self._brokers[node_id]
        if not self._leads(node_id):
            return
        reached = {it for it, end in broker.progress.items() if end >= broker.high_watermark}
        begins = next((at for at, (epoch, _) in enumerate(broker.log) if epoch == broker.known.leader_epoch), 0)
        reached = {
            it
            for it in reached & self._live
            if broker.progress[it] >= begins and broker.seen[it] == self._brokers[it].incarnation
        }
        broker.joining = tuple(reached)
        if self._random.random() < 0.3:
            return  # it is asked, and nobody answers yet
        leaving = {it for it in broker.known.isr if it != node_id and self._random.random() < 0.3}
        if self._state.leader == node_id and self._state.leader_epoch == broker.known.leader_epoch:
            isr = tuple(
                it
                for it in STATE.replicas
                if (it in self._state.isr and it not in leaving) or (it in reached and it not in leaving)
            )
            self._set(with_isr(self._state, isr))

    def _set(self, after: PartitionState) -> None:
        if after == self._state:
            return
        if after.leader != NO_LEADER and after.leader != self._state.leader and after.leader not in self._state.isr:
            self.elections_of_eligible += 1
        self._state = with_eligible(self._state, after, self._random.choice((1, 2, 3, None)))
        assert self._state.isr
        assert not set(self._state.isr) & set(self._state.elr)

    def _elect(self) -> None:
        self._set(follow_live(self._state, self._live))

    def _fence(self) -> None:
        self._live.discard(self._any())
        if self._random.random() < 0.7:
            self._elect()

    def _return(self) -> None:
        self._live.add(self._any())
        if self._random.random() < 0.7:
            self._elect()

    def _lose(self) -> None:
        """A broker dies with its disk, and leaves before it is alive again; unless nobody else has anything."""
        node_id = self._any()
        if self._state.isr == (node_id,) and not self._state.elr:
            return
        self._live.discard(node_id)
        nothing_known = PartitionState(NO_LEADER, STATE.replicas, STATE.isr)
        self._brokers[node_id] = Broker(known=nothing_known, incarnation=self._brokers[node_id].incarnation + 1)
        self._set(leave(self._state, node_id, self._live))

    def _reconfigure(self) -> None:
        self._brokers[self._any()].min_in_sync = self._random.choice((1, 2, 3))


def test_no_order_of_events_loses_what_was_committed() -> None:
    of_eligible = 0
    for seed in range(400):
        history = History(seed)
        history.run(120)
        of_eligible += history.elections_of_eligible
    assert of_eligible > 30
