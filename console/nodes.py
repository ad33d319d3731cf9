"""Asking the other nodes of the cluster for what the pages show, over the connections between brokers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import trio

from ottla.client.errors import ClientError
from ottla.kproto.errors import ProtocolError
from ottla.kproto.versions import OPEN_END

if TYPE_CHECKING:
    from ottla.kproto.schema import Request
    from ottla.server.broker import Broker

_CHANNEL: Final = "console"
_ASK_SECONDS: Final = 2.0
"""How long a page waits for a node."""


class NodeError(Exception):
    """A node did not answer, or refused; the text is for the page and names the node."""


class Answers(NamedTuple):
    """The nodes' answers, by id, and a sentence for each node that did not answer."""

    by_node: dict[int, Any]
    problems: list[str]


def other_nodes(broker: Broker) -> list[int]:
    """The other brokers that are not fenced."""
    return sorted(
        each.node_id for each in broker.metadata.brokers.values() if each.node_id != broker.node_id and not each.fenced
    )


async def ask(
    broker: Broker, node_id: int, request: Request, *, seconds: float = _ASK_SECONDS, at_most: int = OPEN_END
) -> Any:
    """The answer of another node. Raises NodeError."""
    try:
        with trio.move_on_after(seconds):  # the connection is made within that time, too
            return await broker.peers.call(node_id, request, channel=_CHANNEL, timeout_seconds=seconds, at_most=at_most)
    except (ClientError, ProtocolError) as error:
        raise NodeError(f"Node {node_id} does not answer: {error}.") from None
    raise NodeError(f"Node {node_id} does not answer within {seconds:g} s.")


async def ask_each(broker: Broker, requests: Mapping[int, Request], *, seconds: float = _ASK_SECONDS) -> Answers:
    """Ask several nodes at once."""
    answers = Answers({}, [])

    async def ask_one(node_id: int, request: Request) -> None:
        try:
            answers.by_node[node_id] = await ask(broker, node_id, request, seconds=seconds)
        except NodeError as error:
            answers.problems.append(str(error))

    async with trio.open_nursery() as nursery:
        for node_id, request in requests.items():
            nursery.start_soon(ask_one, node_id, request)
    return answers
