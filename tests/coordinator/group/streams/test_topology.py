"""What a topology needs of topics: numbers of partitions, what is missing, and what does not fit."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from ottla.coordinator.errors import StreamsInvalidTopologyError
from ottla.coordinator.group.streams.topology import (
    ConfiguredTopology,
    InternalTopic,
    StreamsStatus,
    Topology,
    configure,
)
from ottla.kproto.internal_records.streams_group import CopartitionGroup, Subtopology, TopicConfig, TopicInfo


def configured(topics: Mapping[str, int], *subtopologies: Subtopology) -> ConfiguredTopology:
    return configure(Topology(0, subtopologies), topics.get)


def info(name: str, partitions: int = 0, **configs: str) -> TopicInfo:
    listed = [TopicConfig(key=key.replace("_", "."), value=value) for key, value in configs.items()]
    return TopicInfo(name=name, partitions=partitions, topic_configs=listed)


def test_internal_topics_have_as_many_partitions_as_what_they_are_made_of() -> None:
    found = configured(
        {"a": 3, "b": 5},
        Subtopology(subtopology_id="0", source_topics=["a", "b"], repartition_sink_topics=["r1"]),
        Subtopology(
            subtopology_id="1",
            repartition_source_topics=[info("r1")],
            repartition_sink_topics=["r2"],
            state_changelog_topics=[info("c1", cleanup_policy="compact")],
        ),
        Subtopology(subtopology_id="2", repartition_source_topics=[info("r2", 7)]),
    )
    assert found.to_create == {
        "c1": InternalTopic("c1", 5, 0, {"cleanup.policy": "compact"}),
        "r1": InternalTopic("r1", 5, 0, {}),
        "r2": InternalTopic("r2", 7, 0, {}),
    }
    assert found.problem == (StreamsStatus.MISSING_INTERNAL_TOPICS, "Internal topics are missing: c1, r1, r2")
    assert [(each.task_count, each.is_stateful) for each in found.subtopologies.values()] == [
        (5, False),
        (5, True),
        (7, False),
    ]


def test_it_is_ready_when_all_are_there() -> None:
    subtopology = Subtopology(subtopology_id="0", source_topics=["a"], state_changelog_topics=[info("c")])
    assert configured({"a": 2, "c": 2}, subtopology).is_ready
    wrong = configured({"a": 2, "c": 3}, subtopology)
    assert wrong.problem == (
        StreamsStatus.INCORRECTLY_PARTITIONED_TOPICS,
        "Existing topic c has different number of partitions: expected 2, found 3",
    )


def test_missing_sources_are_named_up_to_three() -> None:
    subtopology = Subtopology(subtopology_id="0", source_topics=["e", "d", "c", "b", "a"])
    problem = configured({"d": 1}, subtopology).problem
    assert problem == (
        StreamsStatus.MISSING_SOURCE_TOPICS,
        "Source topics a, b, c and 1 additional topics are missing.",
    )


def test_copartitioned_repartition_topics_follow_the_source() -> None:
    subtopology = Subtopology(
        subtopology_id="0",
        source_topics=["a"],
        repartition_source_topics=[info("r")],
        copartition_groups=[CopartitionGroup(source_topics=[0], repartition_source_topics=[0])],
    )
    writer = Subtopology(subtopology_id="1", source_topics=["b"], repartition_sink_topics=["r"])
    assert configured({"a": 4, "b": 9}, subtopology, writer).to_create["r"].partitions == 4
    subtopology.repartition_source_topics = [info("r", 2)]
    assert configured({"a": 4, "b": 9}, subtopology, writer).problem == (
        StreamsStatus.INCORRECTLY_PARTITIONED_TOPICS,
        "Number of partitions [2] of repartition topic [r] doesn't match number of partitions [4] of the source topic.",
    )


def test_copartitioned_repartition_topics_alone_take_the_largest() -> None:
    joined = Subtopology(
        subtopology_id="0",
        repartition_source_topics=[info("r"), info("s")],
        copartition_groups=[CopartitionGroup(repartition_source_topics=[0, 1])],
    )
    writers = [
        Subtopology(subtopology_id="1", source_topics=["a"], repartition_sink_topics=["r"]),
        Subtopology(subtopology_id="2", source_topics=["b"], repartition_sink_topics=["s"]),
    ]
    made = configured({"a": 4, "b": 9}, joined, *writers).to_create
    assert {name: topic.partitions for name, topic in made.items()} == {"r": 9, "s": 9}
    joined.repartition_source_topics = [info("r", 2), info("s", 3)]
    problem = configured({"a": 4, "b": 9}, joined, *writers).problem
    assert problem is not None
    assert problem.detail == "Following topics do not have the same number of partitions: [{r=2, s=3}]"


@pytest.mark.parametrize(
    ("subtopology", "words"),
    [
        (Subtopology(subtopology_id="0"), "No source topics found"),
        (
            Subtopology(
                subtopology_id="0",
                source_topics=["a"],
                copartition_groups=[CopartitionGroup(source_topics=[1])],
            ),
            "names a topic that is not there",
        ),
        (
            Subtopology(
                subtopology_id="0",
                source_topics=["a"],
                copartition_groups=[CopartitionGroup(repartition_source_topics=[-1])],
            ),
            "names a topic that is not there",
        ),
        (
            Subtopology(subtopology_id="0", source_topics=["a"], repartition_source_topics=[info("r", -1)]),
            "cannot have -1 partitions",
        ),
        (
            Subtopology(subtopology_id="0", repartition_source_topics=[info("r")], repartition_sink_topics=["r"]),
            "There may be loops",
        ),
        (
            Subtopology(subtopology_id="0", source_topics=["a"], repartition_source_topics=[info("r")]),
            "never used as a sink topic",
        ),
    ],
)
def test_what_can_never_run(subtopology: Subtopology, words: str) -> None:
    with pytest.raises(StreamsInvalidTopologyError, match=words):
        configured({"a": 1}, subtopology)


def test_a_subtopology_that_is_there_twice() -> None:
    twice = [Subtopology(subtopology_id="0", source_topics=["a"])] * 2
    with pytest.raises(StreamsInvalidTopologyError, match="defined twice"):
        Topology(0, twice)
