"""What the mirror's topics are made of."""

from __future__ import annotations

from ottla.metadata.changes.topic_changes import NewTopic
from ottla.server.mirror.topics import in_batches, is_copied


def test_topics_are_made_a_few_at_a_time_and_fewer_of_large_ones() -> None:
    small = [NewTopic(f"t{number}", 1) for number in range(45)]
    assert [len(some) for some in in_batches(small)] == [20, 20, 5]
    large = [NewTopic("a", 1500), NewTopic("b", 400), NewTopic("c", 600), NewTopic("d", 50_000), NewTopic("e", 1)]
    assert [[it.name for it in some] for some in in_batches(large)] == [["a", "b"], ["c"], ["d"], ["e"]]
    assert list(in_batches([])) == []


def test_what_a_cluster_decides_for_itself_is_not_copied() -> None:
    assert is_copied("cleanup.policy")
    assert is_copied("retention.ms")
    for own in (
        "min.insync.replicas",
        "remote.storage.enable",
        "local.retention.ms",
        "ottla.mirror",
        "no.such.setting",
    ):
        assert not is_copied(own)
