"""How a streams application is wired (KIP-1331): sub-topologies, sources, processors, stores and sinks, as values and
drawn as text.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_KINDS: Final = {1: "source", 2: "processor", 3: "sink"}
_INDENT: Final = "  "
_DEEPEST: Final = 30
"""Deeper nodes are drawn no further to the right."""


@dataclass(slots=True)
class Node:
    """A node: a source with the topics that it reads, a processor with its stores, or a sink with its topic.

    The topic of a sink is None where each record decides.
    """

    name: str
    kind: str
    topics: list[str] = field(default_factory=list)
    stores: list[str] = field(default_factory=list)
    successors: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Part:
    """A sub-topology, or a global store (which has no name)."""

    name: str | None
    nodes: list[Node]


def described_parts(description: Any) -> list[Part]:
    """The parts of what a StreamsGroupDescribe answers, or a StreamsGroupTopologyDescriptionUpdate says."""
    parts = [Part(each.subtopology_id, [_node(node) for node in each.nodes]) for each in description.subtopologies]
    stores = [Part(None, [_node(each.source), _node(each.processor)]) for each in description.global_stores]
    return parts + stores


def _node(said: Any) -> Node:
    topics = list(said.source_topics) if said.sink_topic is None else [said.sink_topic]
    kind = _KINDS.get(said.node_type, "node")
    return Node(said.name, kind, topics, list(said.stores), list(said.successors))


def without_topics(parts: Iterable[Part], may_see: Callable[[str], bool]) -> list[Part]:
    """The same without the names of topics that somebody may not see."""

    def seen(node: Node) -> Node:
        return replace(node, topics=[topic for topic in node.topics if may_see(topic)])

    return [Part(part.name, [seen(node) for node in part.nodes]) for part in parts]


def drawn(part: Part) -> list[str]:
    """A part as lines: each node once, below the one before it; where it is met again, an arrow points to its name."""
    nodes = {node.name: node for node in part.nodes}
    followers = {name for node in part.nodes for name in node.successors if name != node.name}
    lines: list[str] = []
    seen: set[str] = set()
    # What nothing comes before begins; what is left then is a circle.
    for begin in (*(name for name in nodes if name not in followers), *nodes):
        if begin not in seen:
            _draw_from(begin, nodes, seen, lines)
    return lines


def _draw_from(begin: str, nodes: Mapping[str, Node], seen: set[str], lines: list[str]) -> None:
    waiting = [(begin, 0)]
    while waiting:
        name, depth = waiting.pop()
        indent = _INDENT * min(depth, _DEEPEST)
        if name in seen or name not in nodes:
            lines.append(f"{indent}→ {name}")
            continue
        seen.add(name)
        node = nodes[name]
        lines.append(f"{indent}{_line(node)}")
        waiting += [(successor, depth + 1) for successor in reversed(node.successors)]


def _line(node: Node) -> str:
    words = [node.kind, node.name]
    if node.kind == "sink":
        words += ["writes", *(node.topics or ["where each record says"])]
    elif node.topics:
        words += ["reads", *node.topics]
    if node.stores:
        words += ["with", *node.stores]
    return " ".join(words)
