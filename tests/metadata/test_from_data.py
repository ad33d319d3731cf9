"""Which of several nodes' folders is believed when the metadata is restored from the data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import pytest

from ottla.metadata.from_data import Choice, UndecidedError, choose, metadata_of
from ottla.metadata.image import PartitionState, TopicImage
from ottla.metadata.keys import decode, encode, encode_described_topic, starts
from ottla.metastore.store import Put
from ottla.storage.found_topics import FoundLog, FoundTopic, FoundTopics
from ottla.storage.state.leader_epochs import EpochEntry

TOPIC_ID, OTHER_ID = UUID(int=7), UUID(int=8)

Epochs = Sequence[tuple[int, int]]


def log(end_offset: int, epochs: Epochs = ((0, 0),), start_offset: int = 0) -> FoundLog:
    return FoundLog(start_offset, end_offset, tuple(EpochEntry(*entry) for entry in epochs))


def described(
    *replicas: tuple[int, ...], epoch: int = 0, name: str = "t", topic_id: UUID = TOPIC_ID, **configs: str
) -> bytes:
    states = tuple(PartitionState.initial(each)._replace(partition_epoch=epoch) for each in replicas)
    return encode_described_topic(TopicImage(name, topic_id, states, configs, revision=epoch))


def topic(
    logs: Mapping[int, FoundLog], *descriptions: bytes, topic_id: UUID = TOPIC_ID, begun_ms: tuple[int, int] = (1, 1)
) -> FoundTopic:
    return FoundTopic(topic_id, "t", dict(logs), descriptions, *begun_ms)


def chosen(prefer: int | None = None, **nodes: Any) -> Choice:
    """`n1=topic(…)`, or a list of topics, or None for a node that has none."""
    found = {
        int(name[1:]): FoundTopics(each if isinstance(each, list) else [each] if each else [], -1)
        for name, each in nodes.items()
    }
    return choose(found, prefer)


def state(choice: Choice, partition: int = 0) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    it = choice.topics["t"].partitions[partition]
    return it.leader, it.replicas, it.isr


def test_only_the_replica_that_has_everything_leads_and_is_in_sync() -> None:
    words = described((2, 1))
    choice = chosen(n1=topic({0: log(25, [(0, 0), (1, 5)])}, words), n2=topic({0: log(5)}, words))
    assert state(choice) == (1, (2, 1), (1,))
    # It leads in an epoch that no record has.
    assert choice.topics["t"].partitions[0].leader_epoch == 2
    (aside,) = choice.aside
    assert (aside.node_id, aside.is_replica, aside.diverges_at) == (2, True, None)


def test_replicas_that_are_equal_are_all_in_sync() -> None:
    copy = topic({0: log(25, [(0, 0), (1, 5)])}, described((2, 1, 3)))
    choice = chosen(n1=copy, n2=copy, n3=None)
    assert state(choice) == (2, (2, 1, 3), (2, 1))
    assert choice.aside == []


def test_a_later_epoch_counts_for_more_than_more_records() -> None:
    words = described((1, 2))
    isolated, elected = log(30, [(0, 0)]), log(12, [(0, 0), (1, 10)])
    choice = chosen(n1=topic({0: isolated}, words), n2=topic({0: elected}, words))
    assert state(choice) == (2, (1, 2), (2,))
    (aside,) = choice.aside
    assert (aside.node_id, aside.diverges_at) == (1, 10)


@pytest.mark.parametrize("has_facts", [True, False])
@pytest.mark.parametrize("order", [(2, 3), (3, 2)])
def test_of_descriptions_the_newest_counts_whichever_node_comes_last(has_facts: bool, order: tuple[int, int]) -> None:
    """Node 3 was down while the partition was moved from it and node 1 to node 2."""
    old, new = described((3, 1), epoch=1), described((2,), epoch=4)
    if not has_facts:
        old, new = (
            encode({"name": "t", "id": TOPIC_ID.hex, "replicas": [replicas], "configs": {}})
            for replicas in ([3, 1], [2])
        )
    folders = {2: topic({0: log(25, [(0, 0), (2, 5)])}, new), 3: topic({0: log(5)}, old)}
    choice = choose({node_id: FoundTopics([folders[node_id]], -1) for node_id in order})
    assert state(choice) == (2, (2,), (2,))
    (aside,) = choice.aside
    assert (aside.node_id, aside.is_replica) == (3, False)


def test_a_log_that_is_later_than_every_description_leads() -> None:
    """Node 2 was killed before it described that the partition is its own."""
    choice = chosen(n2=topic({0: log(25, [(0, 0), (2, 5)])}), n3=topic({0: log(5)}, described((3, 1))))
    assert state(choice) == (2, (2, 3, 1), (2,))


def test_each_partition_is_looked_at_by_itself() -> None:
    n1 = topic({0: log(9), 1: log(3)}, described((1, 2), (1, 2), epoch=1))
    n2 = topic({0: log(5), 1: log(7), 2: log(2)}, described((2, 1), (1, 2), (2,), epoch=2))
    choice = chosen(n1=n1, n2=n2)
    assert [state(choice, partition) for partition in range(3)] == [
        (1, (2, 1), (1,)),
        (2, (1, 2), (2,)),
        (2, (2,), (2,)),
    ]


def test_where_nobody_has_records_those_who_are_here_are_in_sync() -> None:
    choice = chosen(n1=topic({1: log(1)}, described((3, 1), (1,))), n2=None)
    assert state(choice, 0) == (1, (3, 1), (1,))


def test_an_empty_log_that_reaches_further_has_had_the_records_of_the_others() -> None:
    words = described((1, 2, 3))
    emptied = log(100, (), start_offset=100)
    shorter = chosen(n1=topic({0: log(50)}, words), n2=topic({0: emptied}, words), n3=topic({0: log(0, ())}, words))
    assert state(shorter) == (2, (1, 2, 3), (2,))
    equal = chosen(n1=topic({0: log(100)}, words), n2=topic({0: emptied}, words), n3=None)
    assert state(equal) == (1, (1, 2, 3), (1, 2))
    longer = chosen(n1=topic({0: log(150)}, words), n2=topic({0: emptied}, words), n3=None)
    assert state(longer) == (1, (1, 2, 3), (1,))


def test_histories_with_the_same_epoch_and_other_records_are_refused() -> None:
    words = described((1, 2))
    nodes: dict[str, Any] = {
        "n1": topic({0: log(25, [(0, 0), (2, 5)])}, words),
        "n2": topic({0: log(30, [(0, 0), (2, 7)])}, words),
    }
    with pytest.raises(UndecidedError, match="t-0 on nodes 1, 2"):
        chosen(**nodes)
    choice = chosen(prefer=1, **nodes)
    # As a follower it would never be found to differ.
    assert state(choice) == (1, (1,), (1,))
    (aside,) = choice.aside
    assert (aside.node_id, aside.is_replica, aside.diverges_at) == (2, False, 5)


def test_what_expired_at_the_front_is_no_contradiction() -> None:
    words = described((1, 2))
    whole, shortened = log(25, [(0, 0), (2, 5), (3, 20)]), log(25, [(2, 9), (3, 20)], start_offset=9)
    choice = chosen(n1=topic({0: whole}, words), n2=topic({0: shortened}, words))
    assert state(choice) == (1, (1, 2), (1, 2))


@pytest.mark.parametrize("older", [1, 2])
def test_of_topics_with_one_name_the_last_one_is_restored(older: int) -> None:
    """The older one was deleted while the node was down that still has it."""
    old = topic({0: log(40)}, described((older,)), begun_ms=(100, 300))
    new = topic({0: log(3)}, described((1, 2), topic_id=OTHER_ID), topic_id=OTHER_ID, begun_ms=(400, 400))
    nodes: dict[str, Any] = {"n1": [new], "n2": [new]}
    nodes[f"n{older}"].append(old)
    nodes[f"n{older}"].reverse()
    choice = chosen(**nodes)
    assert choice.topics["t"].topic_id == OTHER_ID
    assert choice.namesakes == [("t", TOPIC_ID, (older,))]


def test_topics_with_one_name_whose_order_is_not_clear_are_refused() -> None:
    one = topic({0: log(40)}, described((1,)), begun_ms=(100, 300))
    other = topic({0: log(3)}, described((2,), topic_id=OTHER_ID), topic_id=OTHER_ID, begun_ms=(200, 400))
    with pytest.raises(UndecidedError, match=f"2 topics t.*{TOPIC_ID} .node 1.*{OTHER_ID} .node 2"):
        chosen(n1=one, n2=other)
    assert chosen(prefer=1, n1=one, n2=other).topics["t"].topic_id == TOPIC_ID
    with pytest.raises(UndecidedError):
        chosen(prefer=1, n1=[one, other], n2=other)


def test_without_a_description_all_who_have_records_are_replicas() -> None:
    choice = chosen(n1=topic({0: log(5)}), n2=topic({0: log(25, [(0, 0), (1, 5)]), 2: log(1)}, b"{damaged"))
    assert choice.topics["t"].is_guessed
    assert [state(choice, partition) for partition in range(3)] == [
        (2, (2, 1), (2,)),
        (1, (1, 2), (1, 2)),
        (2, (2,), (2,)),
    ]


def test_settings_are_those_of_the_newest_description() -> None:
    old = described((1, 2), epoch=2, retention_ms="1")
    new = described((1, 2), epoch=3, retention_ms="2")
    choice = chosen(n1=topic({0: log(5)}, new), n2=topic({0: log(5)}, old))
    assert choice.topics["t"].configs == {"retention_ms": "2"}


def test_no_fewer_starts_are_counted_than_a_folder_has_seen() -> None:
    """A node whose folder has seen more would take the metadata for an older copy."""
    found = {1: FoundTopics([topic({0: log(5, [(3, 0)])}, described((1, 2)))], -1, starts=9), 2: FoundTopics([], -1)}
    puts = {each.key: decode(each.value) for each in metadata_of(choose(found), "ours", found) if isinstance(each, Put)}
    assert (puts[starts(1)], puts[starts(2)]) == (9, 4)
