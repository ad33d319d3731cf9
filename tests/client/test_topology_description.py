"""How a topology is drawn."""

from __future__ import annotations

from ottla.client.admin.topology_description import Node, Part, described_parts, drawn, without_topics
from ottla.kproto.messages.groups.streams_group_describe import (
    TopologyDescription,
    TopologyDescriptionGlobalStore,
    TopologyDescriptionNode,
    TopologyDescriptionSubtopology,
)

SOURCE = TopologyDescriptionNode(name="in", node_type=1, source_topics=["lines"], successors=["cut", "count"])
CUT = TopologyDescriptionNode(name="cut", node_type=2, successors=["count"])
COUNT = TopologyDescriptionNode(name="count", node_type=2, stores=["counts"], successors=["out", "any"])
OUT = TopologyDescriptionNode(name="out", node_type=3, sink_topic="words")
ANY = TopologyDescriptionNode(name="any", node_type=3)


def test_each_node_is_drawn_once_below_the_one_before_it() -> None:
    part = TopologyDescriptionSubtopology(subtopology_id="0", nodes=[OUT, COUNT, SOURCE, CUT, ANY])
    store = TopologyDescriptionGlobalStore(source=SOURCE, processor=COUNT)
    found = described_parts(TopologyDescription(subtopologies=[part], global_stores=[store]))
    assert [each.name for each in found] == ["0", None]
    assert drawn(found[0]) == [
        "source in reads lines",
        "  processor cut",
        "    processor count with counts",
        "      sink out writes words",
        "      sink any writes where each record says",
        "  → count",
    ]


def test_circles_and_names_that_are_not_there_end() -> None:
    part = Part("0", [Node("a", "processor", successors=["b", "x"]), Node("b", "processor", successors=["a"])])
    assert drawn(part) == ["processor a", "  processor b", "    → a", "  → x"]
    assert drawn(Part("0", [Node("a", "processor", successors=["a"])])) == ["processor a", "  → a"]


def test_a_long_chain_is_drawn_whole() -> None:
    nodes = [Node(str(n), "processor", successors=[str(n + 1)]) for n in range(5000)]
    lines = drawn(Part("0", nodes))
    assert len(lines) == 5001
    assert max(map(len, lines)) < 100


def test_topics_that_somebody_may_not_see_are_left_out() -> None:
    (part,) = without_topics([Part("0", [Node("a", "source", topics=["t", "u"])])], lambda topic: topic == "u")
    assert part.nodes[0].topics == ["u"]
