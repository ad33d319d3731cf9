"""What may become of a partition's state: who leads, who is in sync, who holds it."""

from __future__ import annotations

from collections.abc import Container
from random import Random
from uuid import UUID

import pytest

from ottla.metadata.changes import partition_changes
from ottla.metadata.changes.eligible_leaders import with_eligible
from ottla.metadata.changes.partition_changes import (
    cancel_reassignment,
    hand_over,
    is_unclean,
    leave,
    reassign,
    with_isr,
)
from ottla.metadata.changes.partition_transactions import in_transactions, plan_changes
from ottla.metadata.image import NO_LEADER, BrokerImage, MetadataImage, PartitionState, TopicImage


def follow_live(state: PartitionState, live: Container[int], *, unclean: bool = False) -> PartitionState:
    """Without eligible leaders, which are tested beside this."""
    after = partition_changes.follow_live(state, live, unclean=unclean)
    return after if after is state else with_eligible(state, after, None)


STATE = PartitionState(leader=0, replicas=(0, 1, 2), isr=(0, 1, 2), leader_epoch=5, partition_epoch=9)


def epochs(state: PartitionState) -> tuple[int, int]:
    return state.leader_epoch - STATE.leader_epoch, state.partition_epoch - STATE.partition_epoch


class TestFollowingTheLiving:
    def test_nothing_changes_while_all_are_alive(self) -> None:
        assert follow_live(STATE, {0, 1, 2}) is STATE

    def test_a_dead_leader_is_followed_by_the_next_replica_in_sync(self) -> None:
        after = follow_live(STATE, {1, 2})
        assert (after.leader, after.isr, epochs(after)) == (1, (1, 2), (1, 1))

    def test_a_dead_follower_leaves_the_set_and_the_leaders_epoch_stays(self) -> None:
        after = follow_live(STATE, {0, 1})
        assert (after.leader, after.isr, epochs(after)) == (0, (0, 1), (0, 1))

    def test_a_living_replica_that_is_not_in_sync_does_not_lead(self) -> None:
        state = STATE._replace(isr=(0, 1))
        after = follow_live(state, {2})
        assert (after.leader, after.isr) == (NO_LEADER, (0, 1))

    def test_the_last_of_the_set_stays_in_it_and_leads_again_when_it_returns(self) -> None:
        alone = follow_live(STATE, {1})
        gone = follow_live(alone, {0, 2})
        assert (gone.leader, gone.isr) == (NO_LEADER, (1,))
        back = follow_live(gone, {0, 1, 2})
        assert (back.leader, back.isr, back.leader_epoch) == (1, (1,), gone.leader_epoch + 1)

    def test_of_a_set_that_died_at_once_whoever_returns_first_leads(self) -> None:
        gone = follow_live(STATE, ())
        assert (gone.leader, gone.isr) == (NO_LEADER, (0, 1, 2))
        assert follow_live(gone, ()) is gone
        assert follow_live(gone, {2}).leader == 2

    def test_an_unclean_election_takes_any_living_replica_and_says_so(self) -> None:
        state = STATE._replace(isr=(0,))
        after = follow_live(state, {2, 1}, unclean=True)
        assert (after.leader, after.isr, is_unclean(state, after)) == (1, (1,), True)
        clean = follow_live(STATE, {1}, unclean=True)
        assert (clean.leader, is_unclean(STATE, clean)) == (1, False)

    def test_no_sequence_of_deaths_makes_a_leader_of_who_is_not_in_sync(self) -> None:
        rng = Random(1)
        for _ in range(200):
            state = STATE
            for _ in range(20):
                live = {broker for broker in state.replicas if rng.random() < 0.5}
                after = follow_live(state, live)
                assert set(after.isr) <= set(state.isr)
                assert after.isr
                assert after.leader == NO_LEADER or after.leader in live & set(state.isr)
                assert (after.leader != state.leader) == (after.leader_epoch > state.leader_epoch)
                assert (after != state) == (after.partition_epoch > state.partition_epoch)
                state = with_isr(after, after.replicas) if rng.random() < 0.2 else after


class TestLeaving:
    def test_who_stops_in_order_hands_over(self) -> None:
        after = hand_over(STATE, 0, {0, 1, 2})
        assert (after.leader, after.isr, epochs(after)) == (1, (1, 2), (1, 1))
        assert hand_over(STATE, 2, {0, 1, 2}).isr == (0, 1)

    def test_who_is_alone_has_nobody_to_hand_over_to(self) -> None:
        assert hand_over(STATE, 0, {0}) is STATE
        alone = PartitionState.initial((0,))
        assert hand_over(alone, 0, {0, 1, 2}) is alone

    def test_who_may_have_lost_something_leaves_even_if_nobody_can_lead(self) -> None:
        after = leave(STATE, 0, {0})
        assert (after.leader, after.isr) == (NO_LEADER, (1, 2))
        assert leave(STATE, 0, {2}).leader == 2
        assert leave(STATE._replace(isr=(0,)), 0, {1, 2}).isr == (0,)


class TestReassigning:
    def test_what_joins_first_has_to_be_in_sync(self) -> None:
        begun = reassign(STATE, (1, 2, 3), (0, 1, 2, 3))
        assert (begun.replicas, begun.adding_replicas, begun.removing_replicas) == ((1, 2, 3, 0), (3,), (0,))
        done = with_isr(begun, (0, 1, 2, 3))
        assert (done.replicas, done.isr, done.leader) == ((1, 2, 3), (1, 2, 3), 1)
        assert done.leader_epoch == begun.leader_epoch + 1

    def test_a_replica_that_is_taken_away_is_refused_from_the_next_epoch_on(self) -> None:
        shrunk = reassign(STATE, (0, 1), (0, 1, 2))
        assert (shrunk.replicas, shrunk.leader, epochs(shrunk)) == ((0, 1), 0, (1, 1))
        grown = reassign(shrunk, (0, 1, 2), (0, 1, 2))
        assert grown.leader_epoch == shrunk.leader_epoch
        assert cancel_reassignment(grown).leader_epoch == grown.leader_epoch + 1

    def test_a_target_that_is_replaced_takes_its_leader_along(self) -> None:
        moving = reassign(STATE, (3, 1, 2), (0, 1, 2, 3))._replace(isr=(3, 1, 2, 0), leader=3)
        again = reassign(moving, (4, 1, 2), (0, 1, 2, 3, 4))
        assert again.leader in again.isr
        assert 3 not in again.isr


class TestTransactions:
    @pytest.fixture
    def image(self) -> MetadataImage:
        topics = [TopicImage(f"t{n}", UUID(int=n + 5), (STATE,) * 100) for n in range(3)]
        empty = MetadataImage()
        return MetadataImage(
            topics=empty.topics.update({topic.name: topic for topic in topics}, ()),
            topics_by_id=empty.topics_by_id.update({topic.topic_id: topic for topic in topics}, ()),
            brokers={n: BrokerImage(n, (), epoch=n + 70) for n in range(4)},
        )

    def test_many_partitions_take_few_transactions_that_every_store_accepts(self, image: MetadataImage) -> None:
        asked = {
            (topic.topic_id, index): lambda state: follow_live(state, {1, 2})
            for topic in image.topics.values()
            for index in range(100)
        }
        parts = list(in_transactions(asked))
        assert [key for part in parts for key in part] == list(asked)
        assert len(parts) <= 4
        for part in parts:
            compares, operations, results = plan_changes(part, image, lambda _: 1, lambda _: None)
            assert len(operations) == len(results) == len(part)
            assert len(compares) <= 128
            assert "/starts/0" in [compare.key for compare in compares]

    def test_who_joins_the_set_is_the_process_that_was_seen(self, image: MetadataImage) -> None:
        key = (UUID(int=5), 0)
        compares, _, _ = plan_changes({key: lambda state: with_isr(state, (0, 1))}, image, lambda _: 1, lambda _: None)
        assert not [compare.key for compare in compares if compare.key.startswith("/brokers/")]
        joined = {key: lambda state: state._replace(isr=(*state.isr, 3), partition_epoch=state.partition_epoch + 1)}
        compares, _, _ = plan_changes(joined, image, lambda _: 1, lambda _: None)
        assert [compare.key for compare in compares if compare.key.startswith("/brokers/")] == ["/brokers/3"]
        # A late request of the leader's former process adds nobody: the present one would not count them yet.
        assert [compare.key for compare in compares if compare.key.startswith("/starts/")] == ["/starts/0"]
