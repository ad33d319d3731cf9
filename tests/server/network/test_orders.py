"""Everything that may overlap on one connection, in random orders: answers come in the order of the requests, whole."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import trio

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.frames import build_request_frame
from ottla.kproto.messages.data.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from ottla.kproto.messages.groups.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.kproto.messages.groups.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from ottla.kproto.messages.groups.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponseTopic,
)
from ottla.kproto.messages.topics.metadata import MetadataRequest, MetadataResponse
from ottla.kproto.schema import Request, Response
from ottla.runtime.stages import Stages
from ottla.server.apis.context import RequestContext
from ottla.server.apis.pending import Answer, Pending, begin
from tests.flags import Flag, FlagWait

Serve = Callable[..., Any]

COUNT = 60
MAX_PIPELINED = 5
# Several of these are more than a socket takes from a server whose client does not read.
LARGE = "x" * 30_000
HUGE = "x" * 700_000
LARGE_STRING = 30_000
VERSIONS = {
    ApiKey.METADATA: 5, ApiKey.LIST_GROUPS: 2, ApiKey.HEARTBEAT: 2, ApiKey.PRODUCE: 9, ApiKey.OFFSET_COMMIT: 6,
}  # fmt: skip


class Written(Pending):
    """Is ready when its time has come, in whichever order."""

    def __init__(self, handlers: Handlers, response: Response) -> None:
        self._handlers = handlers
        self._response = response
        self._written = Flag()
        handlers.unwritten.append(self)

    @property
    def is_ready(self) -> bool:
        return self._written.is_set()

    def watch(self, ready: Callable[[], None]) -> None:
        self._written.watch(ready)

    def set(self) -> None:
        self._written.set()

    def response(self) -> Response:
        self._handlers.answered += 1
        return self._response


class Handlers:
    """Each API answers with its request's number: at once, after a while in a task or in none, when it is written, or
    after both.
    """

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        #: How the disk is, and how large answers are.
        self.ready_share = rng.choice([0.1, 0.5, 0.9])
        self.write_steps = rng.choice([1, 10, 100])
        self.sizes = rng.choice([(1, 0, 0), (8, 3, 1), (2, 1, 1)])
        self.unwritten: list[Written | Flag] = []
        self.begun: list[int] = []
        self.is_waiting = False
        #: Of those that have a second phase.
        self.pipelined = self.answered = 0

    def begin(self, context: RequestContext, *, is_pipelined: bool) -> str:
        """Its request's turn has come: the text that makes its answer as large as it is to be."""
        assert not self.is_waiting, "it has overtaken one that waits"
        self.begun.append(context.header.correlation_id)
        if is_pipelined:
            self.pipelined += 1
            assert self.pipelined - self.answered <= MAX_PIPELINED
        else:
            assert self.pipelined == self.answered, "it has overtaken one that was not answered"
        return self.rng.choices(["x", LARGE, HUGE], self.sizes)[0]

    def metadata(self, _: MetadataRequest, context: RequestContext) -> MetadataResponse:
        text = self.begin(context, is_pipelined=False)
        return MetadataResponse(cluster_id=text[:LARGE_STRING], controller_id=context.header.correlation_id)

    async def list_groups(self, _: ListGroupsRequest, context: RequestContext) -> ListGroupsResponse:
        text = self.begin(context, is_pipelined=False)
        await self.rest()
        groups = [ListedGroup(group_id=text[at : at + LARGE_STRING]) for at in range(0, len(text), LARGE_STRING)]
        return ListGroupsResponse(throttle_time_ms=context.header.correlation_id, groups=groups)

    def heartbeat(self, _: HeartbeatRequest, context: RequestContext) -> Answer:
        self.begin(context, is_pipelined=False)
        return begin(self.wait(context))

    def wait(self, context: RequestContext) -> Stages[HeartbeatResponse]:
        """Wait for one thing after the other, in no task or in one."""
        self.is_waiting = True
        for _ in range(self.rng.choice([1, 1, 3])):
            if self.rng.random() < 0.8:
                self.unwritten.append(flag := Flag())
                yield FlagWait(flag)
            else:
                yield self.rest
        self.is_waiting = False
        return HeartbeatResponse(throttle_time_ms=context.header.correlation_id)

    def produce(self, _: ProduceRequest, context: RequestContext) -> Pending:
        text = self.begin(context, is_pipelined=True)
        partitions = [
            PartitionProduceResponse(index=at, error_message=text[at : at + LARGE_STRING])
            for at in range(0, len(text), LARGE_STRING)
        ]
        topic = TopicProduceResponse(partition_responses=partitions)
        response = ProduceResponse(throttle_time_ms=context.header.correlation_id, responses=[topic])
        return self.pending(response)

    async def commit(self, _: OffsetCommitRequest, context: RequestContext) -> Pending:
        text = self.begin(context, is_pipelined=True)
        await self.rest()
        topics = [
            OffsetCommitResponseTopic(name=text[at : at + LARGE_STRING]) for at in range(0, len(text), LARGE_STRING)
        ]
        return self.pending(OffsetCommitResponse(throttle_time_ms=context.header.correlation_id, topics=topics))

    def pending(self, response: Response) -> Pending:
        written = Written(self, response)
        if self.rng.random() < self.ready_share:
            self.unwritten.remove(written)
            written.set()
        return written

    async def rest(self) -> None:
        for _ in range(self.rng.choice([0, 1, 5])):
            await trio.lowlevel.checkpoint()

    async def write(self) -> None:
        """Write what was begun, in any order."""
        while True:
            for _ in range(self.rng.randint(1, self.write_steps)):
                await trio.lowlevel.checkpoint()
            if self.unwritten:
                self.unwritten.pop(self.rng.randrange(len(self.unwritten))).set()

    @property
    def all(self) -> dict[ApiKey, Any]:
        return {
            ApiKey.METADATA: self.metadata,
            ApiKey.LIST_GROUPS: self.list_groups,
            ApiKey.HEARTBEAT: self.heartbeat,
            ApiKey.PRODUCE: self.produce,
            ApiKey.OFFSET_COMMIT: self.commit,
        }


def requests(rng: random.Random) -> list[Request]:
    weights = rng.choice(
        [(1, 1, 1, 1, 1), (0, 0, 0, 1, 0), (1, 0, 0, 6, 0), (1, 0, 0, 0, 6), (0, 0, 0, 3, 1), (1, 0, 3, 3, 0)]
    )
    kinds: list[Callable[[], Request]] = [
        MetadataRequest,
        ListGroupsRequest,
        HeartbeatRequest,
        lambda: ProduceRequest(acks=1, timeout_ms=1000),
        lambda: OffsetCommitRequest(group_id="g" * rng.choice([1, 5_000])),
    ]
    return [kind() for kind in rng.choices(kinds, weights, k=COUNT)]


async def send(stream: trio.SocketStream, asked: list[Request], rng: random.Random) -> None:
    """Send all requests, in pieces of any size."""
    data = b"".join(build_request_frame(it, VERSIONS[it.API_KEY], number, "test") for number, it in enumerate(asked, 1))
    while data:
        size = rng.choice([20, 50, 200, 20_000])
        await stream.send_all(data[:size])
        data = data[size:]
        for _ in range(rng.choice([0, 0, 1, 20])):
            await trio.lowlevel.checkpoint()


@pytest.mark.parametrize("seed", range(60))
async def test_answers_come_in_the_order_of_the_requests(serve_handlers: Serve, seed: int) -> None:
    rng = random.Random(seed)
    handlers, asked = Handlers(rng), requests(rng)
    async with (
        serve_handlers(handlers.all, max_pipelined=MAX_PIPELINED) as server,
        trio.open_nursery() as nursery,
    ):
        client = await server.connect()
        nursery.start_soon(handlers.write)
        nursery.start_soon(send, client.stream, asked, rng)
        for number, request in enumerate(asked, 1):
            for _ in range(rng.choice([0, 0, 3, 60])):
                await trio.lowlevel.checkpoint()
            correlation_id, response = await client.receive(request.API_KEY, VERSIONS[request.API_KEY])
            told = response.controller_id if request.API_KEY is ApiKey.METADATA else response.throttle_time_ms
            assert (correlation_id, told) == (number, number)
        nursery.cancel_scope.cancel()
    assert handlers.begun == list(range(1, COUNT + 1))
    assert not handlers.unwritten
