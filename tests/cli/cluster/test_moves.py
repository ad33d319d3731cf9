"""Where replicas move: `ottla cluster drain`, `ottla cluster balance`, `ottla topic alter --replication-factor`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from ottla.cli import CommandError, main
from ottla.cli.cluster.moves import Cluster, Placed, plan_balance, plan_drain, plan_replication_factor
from ottla.testing import Cluster as RunningCluster


def cluster(*replicas: tuple[int, ...], brokers: tuple[int, ...] = (1, 2, 3), **racks: str) -> Cluster:
    by_broker = {broker: racks.get(f"rack_of_{broker}") for broker in brokers}
    return Cluster(by_broker, {Placed("t", index): placed for index, placed in enumerate(replicas)})


def counts(moves: dict[Placed, list[int]], before: Cluster) -> Counter[int]:
    after = {placed: moves.get(placed, list(replicas)) for placed, replicas in before.replicas.items()}
    assert all(len(set(replicas)) == len(replicas) for replicas in after.values())
    return Counter(broker for replicas in after.values() for broker in replicas)


def test_who_is_drained_is_replaced_in_its_place_by_those_that_hold_least() -> None:
    before = cluster((1, 2), (1, 3), (2, 3), (2, 3), brokers=(2, 3, 4))
    moves = plan_drain(1, before)
    assert moves == {Placed("t", 0): [4, 2], Placed("t", 1): [4, 3]}
    assert 1 not in counts(moves, before)


def test_a_partition_on_all_brokers_cannot_lose_one() -> None:
    with pytest.raises(CommandError, match="start another broker"):
        plan_drain(1, cluster((1, 2, 3), brokers=(2, 3)))


def test_balance_evens_out_what_brokers_hold_and_leaves_leaders_if_it_can() -> None:
    before = cluster((1, 2), (1, 2), (1, 2), (2, 1), brokers=(1, 2, 3))
    moves = plan_balance(before)
    assert sorted(counts(moves, before).values()) == [2, 3, 3]
    assert all(replicas[0] in (1, 2) for replicas in moves.values())
    assert plan_balance(cluster((1,), (2,), (3,), (1,))) == {}


def test_more_replicas_go_to_other_racks_first() -> None:
    before = cluster((1,), brokers=(1, 2, 3), rack_of_1="a", rack_of_2="a", rack_of_3="b")
    assert plan_replication_factor(before.replicas, 2, before) == {Placed("t", 0): [1, 3]}
    assert plan_replication_factor(before.replicas, 3, before) == {Placed("t", 0): [1, 3, 2]}


def test_fewer_replicas_are_the_first_of_them() -> None:
    before = cluster((2, 1, 3), (3, 1))
    assert plan_replication_factor(before.replicas, 2, before) == {Placed("t", 0): [2, 1]}


@pytest.mark.parametrize(("count", "words"), [(0, "at least one"), (4, "alive: 3")])
def test_there_are_no_more_replicas_than_brokers(count: int, words: str) -> None:
    before = cluster((1,))
    with pytest.raises(CommandError, match=words):
        plan_replication_factor(before.replicas, count, before)


def test_a_topic_grows_and_a_node_is_drained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with RunningCluster(3, data_dir=tmp_path) as running:
        at = ["--bootstrap", running.bootstrap]
        assert main(["topic", "create", "t", "-p", "3", "-r", "1", *at]) == 0
        for node_id in running.node_ids:
            while main(["topic", "describe", "t", "--bootstrap", running.address(node_id)]):
                pass  # as with Kafka, the others hear of it a moment later
        assert main(["topic", "alter", "t", "-r", "2", *at]) == 0
        assert "3 partitions moved" in capsys.readouterr().out
        assert main(["cluster", "drain", "3", *at]) == 0
        capsys.readouterr()
        assert main(["cluster", "drain", "3", "--dry-run", *at]) == 0
        assert capsys.readouterr().out == "nothing has to move\n"
        assert main(["topic", "list", *at]) == 0
        assert ["t", "3", "2"] in [line.split() for line in capsys.readouterr().out.splitlines()]
        assert main(["cluster", "balance", *at]) == 0
        assert "-> " in capsys.readouterr().out
