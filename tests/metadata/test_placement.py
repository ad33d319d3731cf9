"""Where new partitions go: evenly over brokers and racks, and with whom they begin."""

from __future__ import annotations

from collections import Counter
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trio.lowlevel import checkpoint

from ottla.metadata import keys
from ottla.metadata.changes.placement import place_replicas
from ottla.metadata.changes.topic_changes import begin
from ottla.metadata.errors import InvalidReplicaAssignmentError, InvalidReplicationFactorError
from ottla.metadata.image import BrokerImage, MetadataImage, PartitionState

ID = UUID(int=7)


def brokers(racks: str, fenced: tuple[int, ...] = ()) -> list[BrokerImage]:
    """Broker n lies in the rack that the n-th letter names, '-' for none."""
    return [
        BrokerImage(number, (), rack=None if rack == "-" else rack, fenced=number in fenced)
        for number, rack in enumerate(racks, 1)
    ]


class TestPlacing:
    @pytest.mark.parametrize(
        ("racks", "replicas"), [("---", 1), ("---", 3), ("aabbcc", 3), ("aabbcc", 1), ("abc", 2), ("abc", 1)]
    )
    async def test_leaders_and_replicas_are_spread_evenly(self, racks: str, replicas: int) -> None:
        placed = await place_replicas(brokers(racks), 60, replicas, seed=1)
        assert set(Counter(one[0] for one in placed).values()) == {60 // len(racks)}
        assert set(Counter(broker for one in placed for broker in one).values()) == {60 * replicas // len(racks)}

    async def test_the_replicas_of_a_partition_lie_in_different_racks(self) -> None:
        racks = "aabbccc"
        placed = await place_replicas(brokers(racks), 200, 3, seed=3)
        assert {frozenset(racks[broker - 1] for broker in one) for one in placed} == {frozenset("abc")}

    async def test_whose_broker_is_lost_is_led_by_all_others_evenly(self) -> None:
        placed = await place_replicas(brokers("-----"), 1000, 3, seed=2)
        heirs = Counter(one[1] for one in placed if one[0] == 1)
        assert set(heirs) == {2, 3, 4, 5}
        assert max(heirs.values()) < 2 * min(heirs.values())

    async def test_a_fenced_broker_has_what_the_others_have_no_room_for_and_never_leads(self) -> None:
        placed = await place_replicas(brokers("----", fenced=(2,)), 30, 3, seed=1)
        assert all(2 not in one for one in placed)
        placed = await place_replicas(brokers("----", fenced=(2,)), 30, 4, seed=1)
        assert all(2 in one[1:] for one in placed)

    async def test_added_partitions_go_on_where_the_last_one_ended(self) -> None:
        first = await place_replicas(brokers("---"), 2, 1, seed=1)
        existing = [PartitionState.initial(one) for one in first]
        added = await place_replicas(brokers("---"), 1, 1, seed=99, existing=existing)
        assert {one[0] for one in first + added} == {1, 2, 3}

    async def test_small_topics_begin_at_different_brokers(self) -> None:
        leaders = {(await place_replicas(brokers("---"), 1, 1, seed=seed))[0][0] for seed in range(60)}
        assert leaders == {1, 2, 3}

    async def test_what_cannot_be_placed(self) -> None:
        with pytest.raises(InvalidReplicationFactorError, match="only 2 broker"):
            await place_replicas(brokers("--"), 1, 3, seed=1)
        with pytest.raises(InvalidReplicationFactorError, match="All brokers are currently fenced"):
            await place_replicas(brokers("-", fenced=(1,)), 1, 1, seed=1)


@given(
    racks=st.text("-abc", min_size=1, max_size=9),
    fenced=st.sets(st.integers(1, 9)),
    replicas=st.integers(1, 9),
    partitions=st.integers(1, 40),
    seed=st.integers(0, 1 << 32),
)
def test_any_placement_has_distinct_brokers_and_a_living_leader(
    racks: str, fenced: set[int], replicas: int, partitions: int, seed: int
) -> None:
    import trio

    there = brokers(racks, tuple(fenced))
    live = {broker.node_id for broker in there if not broker.fenced}
    if not live or replicas > len(there):
        return
    placed = trio.run(lambda: place_replicas(there, partitions, replicas, seed=seed))
    assert len(placed) == partitions
    for one in placed:
        assert len(set(one)) == len(one) == replicas
        assert one[0] in live


class TestBeginning:
    def image(self, fenced: tuple[int, ...]) -> MetadataImage:
        return MetadataImage(brokers={it.node_id: it for it in brokers("---", fenced)}, starts={2: 4})

    async def test_all_are_in_sync_and_nothing_is_written(self) -> None:
        await checkpoint()
        assert begin(ID, [(2, 1)], self.image(())) == ((PartitionState(2, (2, 1), (2, 1), 4, 4),), [])

    async def test_only_the_living_are_in_sync_and_the_first_of_them_leads(self) -> None:
        await checkpoint()
        image = self.image((1,))
        states, puts = begin(ID, [(2, 3), (1, 2, 3)], image, first=5)
        assert states[0].isr == (2, 3)
        assert (states[1].leader, states[1].isr) == (2, (2, 3))
        assert [put.key for put in puts] == [keys.partition(ID, 6)]
        assert keys.decode_partition(puts[0].value, image.starts) == states[1]

    async def test_nobody_is_alive(self) -> None:
        await checkpoint()
        with pytest.raises(InvalidReplicaAssignmentError, match="partition 1 are fenced"):
            begin(ID, [(2,), (1,)], self.image((1,)))
