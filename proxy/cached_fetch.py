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
from ottla.proxy.cache.cache import Flight, Told
from ottla.proxy.cache.seen import READ_COMMITTED
from ottla.proxy.cache.topics import Topics
from ottla.proxy.cache.wanted import State, Wanted, id_of, responses_of, topics_of
from ottla.proxy.heads import framed
from ottla.proxy.transport import send_all

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ottla.kproto.schema import Response
    from ottla.proxy.cache.cache import Cache, Key
    from ottla.proxy.cache.topics import Name, Topic
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
        self._door = exchange.listener
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
        """The requested partitions; None if there are none, or if upstream says nothing about one of the topics."""
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

    # What is there

    def _reader(self) -> object:
        """The reader, as far as upstream can tell clients apart."""
        exchange = self._exchange
        return "the proxy" if exchange.shared.own_login else exchange.admission.principal or self._only_this

    def _state(self, one: Wanted, level: int) -> State:
        partition = self._cache.partition(one.key, one.leader_epoch) if one.is_kept else None
        if partition is None:
            return State.MISS
        offset = one.asked.fetch_offset
        end = partition.end_at(offset, level)
        seen = partition.seen.get((self._door, level))
        if seen is None or not seen.is_fresh() or not self._cache.readers.may(self._reader(), one.key[0]):
            return State.MISS if end < 0 else State.CHECK
        visible_end = seen.visible_end(level)
        if end >= 0:
            return State.HIT if seen.log_start_offset <= offset and end <= visible_end else State.MISS
        return State.TAIL if offset == visible_end else State.MISS

    # The answer

    async def _answer(self, request: FetchRequest, pending: Pending, wanted: Sequence[Wanted]) -> None:
        level = request.isolation_level
        deadline = trio.current_time() + max(0, request.max_wait_ms) / 1000
        waited = False
        while True:
            for one in wanted:
                one.state = self._state(one, level)
            states = {one.state for one in wanted}
            if states <= {State.HIT, State.TAIL} and (State.HIT in states or waited):
                await self._send_found(request, pending, wanted, FetchResponse())
                return
            if waited or not states <= {State.TAIL, State.MISS}:
                break
            flight = self._flight(request, wanted)
            if flight is None:
                break
            self._cache.counters.joined += 1
            with trio.move_on_at(deadline):
                await flight.landed.wait()
                continue
            waited = True
        await self._ask(request, pending, wanted, deadline)

    def _flight(self, request: FetchRequest, wanted: Sequence[Wanted]) -> Flight | None:
        """The flight of another client that brings all that is wanted here, if there is one."""
        found = {self._cache.flights.get(it.route(request.isolation_level)) for it in wanted}
        flight = next(iter(found))
        if len(found) > 1 or flight is None or flight.min_bytes > max(1, request.min_bytes):
            return None
        return flight

    async def _ask(
        self, request: FetchRequest, pending: Pending, wanted: Sequence[Wanted], deadline: float
    ) -> None:  # fmt: skip
        """Ask upstream for what is missing, and whether what is there may be served; then answer."""
        found_some = any(one.state in (State.HIT, State.CHECK) for one in wanted)
        asked = [it for it in wanted if it.state is State.MISS or (it.state is State.TAIL and not found_some)]
        checked = [it for it in wanted if it.state is State.CHECK]
        for one in checked:
            one.was_checked = True
        self._cache.counters.misses += len(asked)
        self._cache.counters.checks += len(checked)
        wait_ms = 0 if found_some else max(0, int((deadline - trio.current_time()) * 1000))
        question = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=0 if found_some else request.min_bytes,
            max_bytes=min(request.max_bytes, _ASKED_BYTES),
            isolation_level=request.isolation_level,
            session_id=0,
            session_epoch=-1,
            topics=topics_of([*(it.question() for it in asked), *(self._as_check(it) for it in checked)]),
        )
        flights = self._take_off(request, asked)
        asked_at = trio.current_time()
        try:
            version = min(self._exchange.served[ApiKey.FETCH], FetchRequest.VERSIONS.highest)
            async with self._exchange.ask(question, version) as response:
                if response.error_code:
                    await self._send(FetchResponse(error_code=response.error_code), pending)
                    return
                self._note(response, wanted, request.isolation_level, asked_at)
                await self._send_found(request, pending, wanted, response)
                await self._keep(asked, request.isolation_level)
        finally:
            for key in flights:
                del self._cache.flights[key]
            for landed in set(flights.values()):
                landed.set()

    def _take_off(
        self, request: FetchRequest, asked: Sequence[Wanted]
    ) -> Mapping[tuple[Key, int, int, int], trio.Event]:
        """Let others know what is being requested here; returns what must be withdrawn later."""
        flight = Flight(request.min_bytes, trio.Event())
        keys = [it.route(request.isolation_level) for it in asked if it.is_kept]
        mine = {key: flight.landed for key in keys if key not in self._cache.flights}
        self._cache.flights.update(dict.fromkeys(mine, flight))
        return mine

    def _as_check(self, one: Wanted) -> tuple[UUID, FetchPartition]:
        """A question at the end of a partition, as far as that is known."""
        partition = self._cache.partition(one.key, one.leader_epoch)
        assert partition is not None
        return one.key[0], FetchPartition(
            partition=one.asked.partition,
            current_leader_epoch=one.leader_epoch,
            fetch_offset=partition.high_watermark,
            partition_max_bytes=1,
        )

    def _note(self, response: FetchResponse, wanted: Sequence[Wanted], level: int, asked_at: float) -> None:
        by_key = {one.key: one for one in wanted}
        for topic in response.responses:
            for data in topic.partitions:
                one = by_key.get((topic.topic_id, data.partition_index))
                if one is None:
                    continue
                one.data = data
                told = Told(data, self._reader(), self._door, level, asked_at)
                self._cache.note(one.key, one.leader_epoch, told)
                if one.was_checked and data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    self._cache.forget(one.key)  # it has lost what it had

    async def _keep(self, asked: Sequence[Wanted], level: int) -> None:
        for one in asked:
            data = one.data
            if one.is_kept and data is not None and not data.error_code and data.records:
                await self._cache.keep(one.key, one.leader_epoch, one.asked.fetch_offset, level, data)

    async def _send_found(
        self, request: FetchRequest, pending: Pending, wanted: Sequence[Wanted], response: FetchResponse
    ) -> None:
        """Answer with what upstream has said, and what is in the cache."""
        level = request.isolation_level
        for one in wanted:
            if one.state is State.CHECK:
                one.state = self._state(one, level)
        answer = FetchResponse(throttle_time_ms=response.throttle_time_ms)
        if pending.version >= _FIRST_VERSION_WITH_ENDPOINTS:
            answer.node_endpoints = response.node_endpoints
        if not any(one.state is State.HIT for one in wanted):
            answer.responses = responses_of([(it, self._told(it, level, pending.version)) for it in wanted])
            await self._send(answer, pending)
            return
        room = min(max(1, request.max_bytes), _ANSWER_BYTES)
        async with self._exchange.shared.hits.hold(room) as held:
            results = []
            for one in wanted:
                data = self._told(one, level, pending.version)
                if one.state is State.HIT and room > 0:
                    room -= await self._fill(data, one, level, min(room, one.asked.partition_max_bytes))
                results.append((one, data))
            answer.responses = responses_of(results)
            await self._send(answer, pending, held)

    def _told(self, one: Wanted, level: int, version: int) -> PartitionData:
        """Upstream's latest answer about a partition; without records if none were asked for."""
        data, index = one.data, one.asked.partition
        if one.state in (State.HIT, State.TAIL) and (data is None or one.state is State.HIT):
            partition = self._cache.partition(one.key, one.leader_epoch)
            seen = None if partition is None else partition.seen.get((self._door, level))
            if seen is None:  # it has gone while other partitions of this request were asked for
                return PartitionData(partition_index=index, error_code=_AGAIN, high_watermark=-1)
            return PartitionData(
                partition_index=index,
                high_watermark=seen.high_watermark,
                last_stable_offset=seen.last_stable_offset,
                log_start_offset=seen.log_start_offset,
                aborted_transactions=[] if level == READ_COMMITTED else None,
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
        """Put in what is in the cache; returns its size."""
        partition = self._cache.partition(one.key, one.leader_epoch)
        found = None
        if partition is not None:
            found = await self._cache.read(partition, one.asked.fetch_offset, max_bytes, level)
        if found is None:
            data.error_code = _AGAIN
            return 0
        self._cache.counters.hits += 1
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
