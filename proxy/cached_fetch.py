"""A client's Fetch, answered from the cache as far as possible, and by upstream for the rest.

What is kept of a partition is served if upstream has just confirmed that this client may read it, in this leader epoch,
from this broker (`cache/seen.py`). If that was too long ago, upstream is asked again: in the request for what is not
kept, or in a separate one for the end of the partition, where there is little to answer. Records that are already being
fetched for another client are not requested again; this client waits for them.

There are no fetch sessions: clients are told so (KIP-227), and name all partitions each time. Topics are requested by
id, whatever the client's version, so that a topic that was created again is never taken for its predecessor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from uuid import UUID

import trio

from ottla.kproto import codec, headers
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.data.fetch import (
    AbortedTransaction,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
)
from ottla.proxy import rewriting
from ottla.proxy.cache.cache import Told
from ottla.proxy.cache.seen import READ_COMMITTED, Reader
from ottla.proxy.cache.topics import Topics
from ottla.proxy.cache.wanted import State, Wanted, id_of, responses_of, topics_of
from ottla.proxy.heads import framed
from ottla.proxy.transport import send_all

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.kproto.schema import Response
    from ottla.proxy.cache.cache import Cache
    from ottla.proxy.cache.topics import Key, Name, Topic
    from ottla.proxy.exchange import Exchange, Pending
    from ottla.proxy.memory import Held

_LOWEST_VERSION: Final = 4
_FIRST_VERSION_WITH_LEADERS: Final = 12
_FIRST_VERSION_WITH_IDS: Final = 13
_FIRST_VERSION_WITH_ENDPOINTS: Final = 16
_ANSWER_BYTES: Final = 1024 * 1024
"""How much of the cache goes into one answer, unless its first batch is larger."""
_ASKED_BYTES: Final = 8 * 1024 * 1024
"""How much is requested from upstream at once; it is held in memory until it is kept."""
_MAX_TOPICS: Final = 1000
_BROKER: Final = "broker-"

_AGAIN: Final = ErrorCode.NOT_LEADER_OR_FOLLOWER
"""Errors after which clients look up the partition's leader, and ask again."""
_OF_IDS: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID})
_OF_EPOCHS: Final = frozenset({ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH})


class CachedFetch:
    """Serves the Fetch requests of one connection."""

    def __init__(self, exchange: Exchange, cache: Cache, node_id: int) -> None:
        self._exchange = exchange
        self._cache = cache
        self._node_id = node_id
        self._only_this = object()

    @staticmethod
    def of(exchange: Exchange) -> CachedFetch | None:
        """None if there is no cache, or if this port does not lead to one certain broker."""
        cache, listener = exchange.shared.cache, exchange.listener
        if cache is None or not listener.startswith(_BROKER):
            return None
        return CachedFetch(exchange, cache, int(listener.removeprefix(_BROKER)))

    def takes(self, version: int) -> bool:
        """Whether requests of this version are given to `serve`."""
        served = self._exchange.served
        return (
            self._cache.is_on
            and version >= _LOWEST_VERSION
            and served.get(ApiKey.FETCH, -1) >= _FIRST_VERSION_WITH_IDS
            and Topics.can_ask(served)
        )

    async def serve(self, request: FetchRequest, pending: Pending) -> FetchRequest | None:
        """Answer a request, or return what to forward in its place."""
        if request.replica_id >= 0 or request.replica_state.replica_id >= 0:
            return request
        await self._exchange.quiet()
        if request.session_id:
            await self._send(FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND), pending)
            return None
        request.session_id, request.session_epoch = 0, -1
        request.forgotten_topics_data = []
        request.rack_id = ""  # or the leader would send the client to another replica
        wanted = await self._wanted(request, pending.version)
        if wanted is None:
            return request
        await self._answer(request, pending, wanted)
        return None

    async def _wanted(self, request: FetchRequest, version: int) -> list[Wanted] | None:
        """The requested partitions; None if there are none, or if upstream does not describe one of the topics."""
        by_id = version >= _FIRST_VERSION_WITH_IDS
        names: list[Name] = [it.topic_id if by_id else it.topic for it in request.topics]
        if not names or len(names) > _MAX_TOPICS:
            return None
        for topic_id in await self._cache.topics.learn(self._exchange.ask, names):
            self._cache.forget_topic(topic_id)
        wanted = []
        for name, asked in zip(names, request.topics, strict=True):
            topic = self._cache.topics.known(name)
            if topic is None and not isinstance(name, UUID):
                return None
            for one in asked.partitions:
                key: Key = (id_of(name, topic), one.partition)
                epoch = self._leader_epoch(topic, one)
                wanted.append(Wanted(name, key, one, epoch, is_kept=topic is not None and topic.is_kept))
        return wanted or None

    def _leader_epoch(self, topic: Topic | None, asked: FetchPartition) -> int:
        """The epoch that a client names; if it names none, the one in which this broker is known to lead."""
        if asked.current_leader_epoch >= 0 or topic is None:
            return asked.current_leader_epoch
        leader_id, leader_epoch = topic.leaders.get(asked.partition, (-1, -1))
        return leader_epoch if leader_id == self._node_id else -1

    def _reader(self, level: int) -> Reader:
        exchange = self._exchange
        identity = "the proxy" if exchange.shared.own_login else exchange.admission.principal or self._only_this
        return Reader(identity, exchange.listener, level)

    # The answer

    async def _answer(self, request: FetchRequest, pending: Pending, wanted: Sequence[Wanted]) -> None:
        reader = self._reader(request.isolation_level)
        deadline = trio.current_time() + max(0, request.max_wait_ms) / 1000
        waited = False
        while True:
            for one in wanted:
                one.look_up(self._cache, reader)
            states = {one.state for one in wanted}
            if states <= {State.HIT, State.TAIL} and (State.HIT in states or waited):
                await self._send_found(request, pending, wanted, reader, FetchResponse())
                return
            if waited or not states <= {State.TAIL, State.MISS}:
                break
            routes = [it.route(reader.level) for it in wanted]
            flight = self._cache.flights.find(routes, request.min_bytes)
            if flight is None:
                break
            self._cache.counters.count_joined()
            with trio.move_on_at(deadline):
                await flight.landed.wait()
                continue
            waited = True
        await self._ask(request, pending, wanted, reader, deadline)

    async def _ask(
        self, request: FetchRequest, pending: Pending, wanted: Sequence[Wanted], reader: Reader, deadline: float
    ) -> None:
        """Ask upstream for missing records, and whether cached ones may be served; then answer."""
        found_some = any(one.state in (State.HIT, State.CHECK) for one in wanted)
        asked = [it for it in wanted if it.state is State.MISS or (it.state is State.TAIL and not found_some)]
        checked = [it for it in wanted if it.state is State.CHECK]
        self._cache.counters.count_asked(len(asked), len(checked))
        wait_ms = 0 if found_some else max(0, int((deadline - trio.current_time()) * 1000))
        question = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=0 if found_some else request.min_bytes,
            max_bytes=min(request.max_bytes, _ASKED_BYTES),
            isolation_level=reader.level,
            session_id=0,
            session_epoch=-1,
            topics=topics_of([*(it.question() for it in asked), *(it.check(self._cache) for it in checked)]),
        )
        routes = [it.route(reader.level) for it in asked if it.is_kept]
        asked_at = trio.current_time()
        with self._cache.flights.flying(routes, request.min_bytes):
            version = min(self._exchange.served[ApiKey.FETCH], FetchRequest.VERSIONS.highest)
            async with self._exchange.ask(question, version) as response:
                if response.error_code:
                    await self._send(FetchResponse(error_code=response.error_code), pending)
                    return
                self._note(response, wanted, reader, asked_at)
                await self._send_found(request, pending, wanted, reader, response)
                await self._keep(asked, reader.level)

    def _note(self, response: FetchResponse, wanted: Sequence[Wanted], reader: Reader, asked_at: float) -> None:
        by_key = {one.key: one for one in wanted}
        for topic in response.responses:
            for data in topic.partitions:
                one = by_key.get((topic.topic_id, data.partition_index))
                if one is None:
                    continue
                one.answered(data)
                self._cache.note(one.key, one.leader_epoch, Told(data, reader, asked_at))
                if one.was_checked and data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    self._cache.forget(one.key)  # it has lost what it had

    async def _keep(self, asked: Sequence[Wanted], level: int) -> None:
        for one in asked:
            data = one.data
            if one.is_kept and data is not None and not data.error_code and data.records:
                await self._cache.keep(one.key, one.leader_epoch, one.asked.fetch_offset, level, data)

    async def _send_found(
        self,
        request: FetchRequest,
        pending: Pending,
        wanted: Sequence[Wanted],
        reader: Reader,
        response: FetchResponse,
    ) -> None:
        """Answer with upstream's response and the cached records."""
        for one in wanted:
            if one.state is State.CHECK:
                one.look_up(self._cache, reader)
        answer = FetchResponse(throttle_time_ms=response.throttle_time_ms)
        if pending.version >= _FIRST_VERSION_WITH_ENDPOINTS:
            answer.node_endpoints = response.node_endpoints
        if not any(one.state is State.HIT for one in wanted):
            answer.responses = responses_of([(it, self._told(it, reader, pending.version)) for it in wanted])
            await self._send(answer, pending)
            return
        room = min(max(1, request.max_bytes), _ANSWER_BYTES)
        async with self._exchange.shared.hits.hold(room) as held:
            results = []
            for one in wanted:
                data = self._told(one, reader, pending.version)
                if one.state is State.HIT and room > 0:
                    room -= await self._fill(data, one, reader.level, min(room, one.asked.partition_max_bytes))
                results.append((one, data))
            answer.responses = responses_of(results)
            await self._send(answer, pending, held)

    def _told(self, one: Wanted, reader: Reader, version: int) -> PartitionData:
        """Upstream's latest answer about a partition; without records if none were asked for."""
        data, index = one.data, one.asked.partition
        if one.state in (State.HIT, State.TAIL) and (data is None or one.state is State.HIT):
            partition = self._cache.partition(one.key, one.leader_epoch)
            seen = None if partition is None else partition.seen_by(reader)
            if seen is None:  # dropped while upstream was asked for other partitions of this request
                return PartitionData(partition_index=index, error_code=_AGAIN, high_watermark=-1)
            return PartitionData(
                partition_index=index,
                high_watermark=seen.high_watermark,
                last_stable_offset=seen.last_stable_offset,
                log_start_offset=seen.log_start_offset,
                aborted_transactions=[] if reader.level == READ_COMMITTED else None,
                records=b"",
            )
        if data is None or (one.was_checked and data.error_code in (ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE)):
            return PartitionData(partition_index=index, error_code=_AGAIN, high_watermark=-1)
        code = data.error_code
        if code in _OF_IDS and version < _FIRST_VERSION_WITH_IDS:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if code in _OF_EPOCHS and one.asked.current_leader_epoch < 0:
            self._cache.topics.forget(one.key[0])
            code = _AGAIN  # the client has named no epoch
        data.error_code = code
        if version < _FIRST_VERSION_WITH_LEADERS:
            data.current_leader = LeaderIdAndEpoch()
        return data

    async def _fill(self, data: PartitionData, one: Wanted, level: int, max_bytes: int) -> int:
        """Put the cached records into an answer; returns their size."""
        partition = self._cache.partition(one.key, one.leader_epoch)
        found = None
        if partition is not None:
            found = await self._cache.read(partition, one.asked.fetch_offset, max_bytes, level)
        if found is None:
            data.error_code = _AGAIN
            return 0
        data.records = found.records
        if level == READ_COMMITTED:
            data.aborted_transactions = [
                AbortedTransaction(producer_id=it, first_offset=of) for it, of in found.aborted
            ]
        return len(found.records)

    async def _send(self, answer: FetchResponse, pending: Pending, held: Held | None = None) -> None:
        """Send an answer through the client's filters."""
        exchange = self._exchange
        response: Response = answer
        if pending.call is not None:
            response = await exchange.chain.response(answer, pending.call) or answer
        rewriting.rewrite_message(response, exchange.localize)
        head = headers.build_response_header(ApiKey.FETCH, pending.version, pending.correlation_id)
        parts = framed(head, *codec.build_parts(response, pending.version))

        def moved() -> None:
            for one in (held, exchange.held):
                if one is not None:
                    one.moved()

        await send_all(exchange.client, parts, moved)
