"""Produce (0): append record batches.

- Versions 3 to 13; below 3 nothing is served, since the record formats of then are gone (KIP-724, KIP-896).
- Each partition holds exactly one batch of format v2, zstd from version 7 on. It is appended or refused separately.
- acks=0 gets no answer; if anything failed the connection is closed, so that the producer notices. acks=1 is answered
  when the leader has written the batch, acks=all when every in-sync replica has; other values INVALID_REQUIRED_ACKS.
- log_append_time_ms is -1 unless the topic stamps records itself.
- Version 8 names the records that were refused and why, version 10 the leader's address beside NOT_LEADER_OR_FOLLOWER
  (KIP-951), version 13 names topics by id: UNKNOWN_TOPIC_ID.
- Only coordinators write to internal topics; others get INVALID_TOPIC_EXCEPTION. Kafka makes an exception for clients
  that call themselves `__admin_client`, Ottla only with `ottla.internal.topics.writable`.
- Nobody but the mirror itself writes to a mirror of another cluster's topic: INVALID_REQUEST.
- What has waited for room is appended only if its producer still waits for it: not when its timeout has passed or its
  connection is closed, and nor is what came after it on that connection. With acks=0 nobody waits anyway.
- A transactional batch without a transactional id is TRANSACTIONAL_ID_AUTHORIZATION_FAILED for the whole request.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from ottla.coordinator.errors import ConcurrentTransactionsError, CoordinatorError, ProducerFencedError
from ottla.coordinator.transaction.state import NO_PRODUCER_ID, Partition, ProducerIdAndEpoch
from ottla.kproto import codec
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.kproto.hot import produce as hot
from ottla.kproto.hot.produce import ProducedPartition, produced_response, produced_topic
from ottla.kproto.hot.recurring import LoneProduce
from ottla.kproto.messages.data.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from ottla.kproto.records import RecordError
from ottla.metadata.acls import AclOperation, AclResource
from ottla.replica.append import Records, TopicIdPartition
from ottla.replica.errors import ReplicaError
from ottla.runtime.errors import CloseConnectionError
from ottla.runtime.stages import Stages
from ottla.server.apis.data.leader_hints import leader_hint
from ottla.server.apis.data.produced_records import (
    is_transactional,
    producer_of,
    sequence_of,
    the_one_batch,
)
from ottla.server.apis.declaration import Api, Codec
from ottla.server.apis.errors import error_code, error_message
from ottla.server.apis.pending import Answer, Pending, begin
from ottla.server.apis.rules import Each, Named, Rule, by_name_or_id
from ottla.server.apis.transaction_errors import FIRST_PRODUCE_OF_V2, produce_refusal
from ottla.server.request_metrics import count_error
from ottla.server.schemas.dead_letters import Sender
from ottla.storage import errors as storage

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from ottla.kproto.codec import Buffer
    from ottla.kproto.messages.data.produce import TopicProduceData
    from ottla.metadata.image import MetadataImage, TopicImage
    from ottla.replica.append import AppendOperation
    from ottla.runtime.purgatory import Watch
    from ottla.server.apis.context import RequestContext
    from ottla.server.schemas.validation import Rule as SchemaRule
    from ottla.storage.log.partition_log import PartitionLog
    from ottla.storage.state.producer_state import VerificationGuard

#: What is told of a partition that its sender may not write to.
_NO_OFFSETS: Final = {"base_offset": -1, "log_append_time_ms": -1, "log_start_offset": -1}


def _count_errors(errors: dict[int, int], response: ProduceResponse) -> None:
    for topic in response.responses:
        for partition in topic.partition_responses:
            if partition.error_code:
                count_error(errors, partition.error_code)


API = Api(
    ApiKey.PRODUCE,
    Rule(
        [Named(AclOperation.WRITE, AclResource.TRANSACTIONAL_ID, "transactional_id")],
        each=Each(AclOperation.WRITE, "topic_data", by_name_or_id, _NO_OFFSETS),
    ),
    pipelined=True,
    codec=Codec(
        parse=hot.parse_request,
        parse_in_steps=hot.parse_request_in_steps,
        build_parts=hot.build_parts,
        build_in_steps=codec.build_in_steps,
        parse_lone=hot.parse_lone_request,
    ),
    count_errors=_count_errors,
)

_NO_ACKS: Final = 0
_VALID_ACKS: Final = (-1, _NO_ACKS, 1)
_FIRST_VERSION_BY_ID: Final = 13
_FIRST_VERSION_WITH_LEADERS: Final = 10
# What the class itself does in Python.
_new_tuple: Final = tuple.__new__

_Refusal = tuple[ErrorCode, "str | None"]

# As Kafka's own admin client calls itself, which may write to internal topics where the operator allows it.
_ADMIN_CLIENT_ID: Final = "__admin_client"


def handle(request: ProduceRequest | LoneProduce, context: RequestContext) -> Answer:
    return begin(_handle(request, context))


def _handle(request: ProduceRequest | LoneProduce, context: RequestContext) -> Stages[_Produce | None]:
    produce = _Produce(request, context)
    if isinstance(request, LoneProduce):
        produce.take_lone(request)
    else:
        yield from produce.take_all(request)
    if request.acks not in _VALID_ACKS:
        produce.refuse_acks()
    produce.require_producer()
    unopened = context.broker.replica_manager.unopened
    if unopened.left:
        yield from unopened.until_open(key for key, _ in produce.entries)
        produce.require_producer()
    if produce.entries and request.transactional_id is not None:
        yield partial(produce.join_transaction, request.transactional_id)
    if produce.entries and context.broker.schema_validation.rules:
        yield produce.validate
        produce.require_producer()
    if produce.entries:
        produce.operation = yield from context.broker.replica_manager.begin_append(
            produce.entries,
            required_acks=request.acks,
            timeout_ms=request.timeout_ms,
            internal_topics_allowed=context.header.client_id == _ADMIN_CLIENT_ID
            and context.broker.config.ottla_internal_topics_writable,
            require_verification=request.transactional_id is not None,
            is_awaited=produce.is_awaited,
        )
    if request.acks != _NO_ACKS:
        return produce
    if not produce.is_ready:
        yield produce.wait
    produce.response()
    failed = produce.first_error()
    if failed:
        raise CloseConnectionError(f"a Produce with acks=0 failed with {failed.name}: closing is its only answer")
    return None


class _Produce(Pending):
    """One request on its way to its response, which has the same shape."""

    __slots__ = (
        "_answers", "_context", "_is_refused", "_of_topic", "_request", "_response", "_topic", "_version", "_watch",
        "entries", "operation",
    )  # fmt: skip

    def __init__(self, request: ProduceRequest | LoneProduce, context: RequestContext) -> None:
        self._request = request
        self._context = context
        self._version = context.header.api_version
        self._response = produced_response()
        self._is_refused = False
        self._watch: Watch | None = None
        # The topic whose partitions are sorted out, and their answers.
        self._topic: TopicImage | None = None
        self._of_topic: list[ProducedPartition] = []
        #: What waits for what was appended.
        self.operation: AppendOperation | None = None
        #: What can be appended, and the answers to it in the same order.
        self.entries: list[tuple[TopicIdPartition, Records]] = []
        self._answers: list[ProducedPartition] = []

    def take_all(self, request: ProduceRequest) -> Stages[None]:
        """Start the answers to everything that a request names."""
        if len(request.topic_data) != 1 or len(request.topic_data[0].partition_data) != 1:
            yield from self.name_each_once(request)
        for topic_data in request.topic_data:
            if not self.begin_topic(topic_data):
                continue
            for data in topic_data.partition_data:
                if self._context.counted is not None:
                    yield partial(self._context.work.charge, 0)
                self.take(data.index, self.find(data.index), data.records or b"")

    def begin_topic(self, asked: TopicProduceData) -> bool:
        """The answers to a topic's partitions begin. False if the whole request is refused."""
        if self._is_refused:
            return False
        self._find_topic(self._context.broker.metadata, asked.name, asked.topic_id)
        if asked.partition_data:
            self._response.responses.append(produced_topic(asked.name, asked.topic_id, self._of_topic))
        return True

    def _find_topic(self, image: MetadataImage, name: str, topic_id: UUID) -> None:
        self._topic = image.topic_by_id(topic_id) if self._version >= _FIRST_VERSION_BY_ID else image.topic(name)
        self._of_topic = []

    def find(self, index: int) -> TopicIdPartition | _Refusal:
        """The partition of the topic to append to, or the refusal."""
        topic = self._topic
        if topic is None:
            by_id = self._version >= _FIRST_VERSION_BY_ID
            return ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None
        if not 0 <= index < len(topic.partitions):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None
        if topic.is_mirrored:
            # Before the partition takes part in a transaction, whose marker would have to be written too.
            return ErrorCode.INVALID_REQUEST, f"{topic.name} is a mirror of another cluster's topic"
        return TopicIdPartition(topic.topic_id, index)

    def take_lone(self, request: LoneProduce) -> None:
        """All of a request that recurs: what it names is looked up once, as long as the metadata stays as it is."""
        recurring = request.recurring
        image = self._context.broker.metadata
        # The revision and not the image: what is seldom asked for again must not keep an old one.
        if recurring.target is None or recurring.target[0] != image.revision:
            self._find_topic(image, recurring.name, recurring.topic_id)
            recurring.target = image.revision, self.find(recurring.index)
        self._response.responses.append(produced_topic(recurring.name, recurring.topic_id, self._of_topic))
        self.take(recurring.index, recurring.target[1], request.records)

    def take(self, index: int, found: TopicIdPartition | _Refusal, records: Buffer) -> None:
        """Start a partition's answer: if it can be appended it becomes one of `entries`, otherwise it has failed."""
        if self._is_refused:
            return
        answer = ProducedPartition(index)
        self._of_topic.append(answer)
        view = memoryview(records)
        if self._request.transactional_id is None and is_transactional(view):
            self._refuse_all(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        elif not isinstance(found, TopicIdPartition):
            answer.error_code, answer.error_message = found
        else:
            try:
                batch = the_one_batch(view, self._version)
            except RecordError as error:
                answer.error_code = error_code(error)
            else:
                self.entries.append((found, _new_tuple(Records, (batch, self._context.fragment, None, None))))
                self._answers.append(answer)

    def require_producer(self) -> None:
        """Raise CloseConnectionError if the producer has left while a request before this one waited for room."""
        if self._context.connection.was_held_up and not self.is_awaited():
            raise CloseConnectionError("it was closed while an earlier Produce waited for room; nothing is appended")

    def is_awaited(self) -> bool:
        """Whether the producer still waits. It is asked when this request, or one before it, has waited for room."""
        connection = self._context.connection
        connection.held_up()
        return self._request.acks == _NO_ACKS or connection.is_awaited

    def refuse_acks(self) -> None:
        """Refuse everything that could be appended: nobody knows when to answer."""
        for answer in self._answers:
            answer.error_code = ErrorCode.INVALID_REQUIRED_ACKS
        self.entries.clear()
        self._answers.clear()

    def name_each_once(self, request: ProduceRequest) -> Stages[None]:
        """Of a partition that is named twice the last batch counts, and the others are as if they were not there."""
        by_id = self._version >= _FIRST_VERSION_BY_ID
        named: dict[UUID | str, dict[int, PartitionProduceData]] = {}
        count = 0
        for topic_data in request.topic_data:
            partitions = named.setdefault(topic_data.topic_id if by_id else topic_data.name, {})
            for data in topic_data.partition_data:
                if self._context.counted is not None:
                    yield partial(self._context.work.charge, 0)
                partitions[data.index] = data
                count += 1
        if count == sum(map(len, named.values())) and len(named) == len(request.topic_data):
            return
        first = {it.topic_id if by_id else it.name: it for it in reversed(request.topic_data)}
        for name, partitions in named.items():
            first[name].partition_data = list(partitions.values())
        request.topic_data = [first[name] for name in named]

    def _refuse_all(self, code: ErrorCode) -> None:
        self._is_refused = True
        self.entries.clear()
        self._answers.clear()
        self._response.responses.clear()
        for topic_data in self._request.topic_data:
            if not topic_data.partition_data:
                continue
            answered = TopicProduceResponse(name=topic_data.name, topic_id=topic_data.topic_id)
            self._response.responses.append(answered)
            for data in topic_data.partition_data:
                refusal = PartitionProduceResponse(index=data.index, error_code=code, base_offset=-1)
                answered.partition_responses.append(refusal)

    async def join_transaction(self, transactional_id: str) -> None:
        """Make sure that each partition of a transactional batch takes part in the producer's transaction (KIP-890).

        From version 12 on the batch itself lets its partition take part; before, AddPartitionsToTxn must have. Such a
        batch waits while the producer's last transaction is being ended, for at most
        `add.partitions.to.txn.retry.backoff.max.ms` (Kafka's ReplicaManager.handleProduceAppend).
        """
        self._refuse_fenced()
        config, transaction_verifier = self._context.broker.config, self._context.broker.transaction_verifier
        joins = self._version >= FIRST_PRODUCE_OF_V2
        deadline = trio.current_time() + config.add_partitions_to_txn_retry_backoff_max_ms / 1000
        while any(self._joined_log(key, records.view) is not None for key, records in self.entries):
            if joins:
                await transaction_verifier.until_settled(transactional_id, deadline - trio.current_time())
            refused, guards = await self._ask_coordinator(transactional_id, joins=joins)
            is_early = any(isinstance(error, ConcurrentTransactionsError) for error in refused.values())
            if not joins or not is_early or trio.current_time() >= deadline:
                self._keep_verified(refused, guards)
                return
            await trio.sleep(config.add_partitions_to_txn_retry_backoff_ms / 1000)

    async def _ask_coordinator(
        self, transactional_id: str, *, joins: bool
    ) -> tuple[dict[TopicIdPartition, CoordinatorError], dict[TopicIdPartition, VerificationGuard | None]]:
        """Partitions that may not take part, and a guard for each first batch, begun before the coordinator answers:
        if the transaction ends before the batch is appended, the batch is refused.
        """
        joining: dict[ProducerIdAndEpoch, list[TopicIdPartition]] = {}
        guards: dict[TopicIdPartition, VerificationGuard | None] = {}
        now_ms = self._context.broker.clock.time_ms()
        is_v2 = self._version >= FIRST_PRODUCE_OF_V2
        for key, (records, *_) in self.entries:
            if (log := self._joined_log(key, records)) is None:
                continue
            producer = producer_of(records)
            joining.setdefault(producer, []).append(key)
            guards[key] = log.begin_verification(
                *producer, sequence_of(records), supports_epoch_bump=is_v2, now_ms=now_ms
            )
        refused: dict[TopicIdPartition, CoordinatorError] = {}
        for producer, keys in joining.items():
            names = {self._partition(key): key for key in keys}
            answers = await self._context.broker.transaction_verifier.verify(
                transactional_id, producer, names, joins=joins
            )
            refused |= {names[partition]: error for partition, error in answers.items()}
            for key in keys:
                if key not in refused and not self._is_valid(key, producer, guards[key]):
                    # A marker came while the coordinator was asked: of the transaction before, or of this one. Who
                    # asks again will know.
                    refused[key] = ConcurrentTransactionsError("the end of a transaction came in between")
        return refused, guards

    def _refuse_fenced(self) -> None:
        """Refuse what the logs know to come from an earlier epoch; the coordinator is not asked about it."""
        fenced: dict[TopicIdPartition, CoordinatorError] = {}
        for key, (records, *_) in self.entries:
            log, producer = self._log(key), producer_of(records)
            known = None if log is None else log.producers
            if is_transactional(records) and known is not None and known.is_fenced(*producer):
                fenced[key] = ProducerFencedError(f"a later epoch than {producer.epoch} is known")
        if fenced:
            self._keep_verified(fenced, {})

    def _keep_verified(
        self,
        refused: dict[TopicIdPartition, CoordinatorError],
        guards: dict[TopicIdPartition, VerificationGuard | None],
    ) -> None:
        entries, answers = self.entries, self._answers
        self.entries, self._answers = [], []
        for (key, records), answer in zip(entries, answers, strict=True):
            if key in refused:
                answer.error_code, answer.error_message = produce_refusal(refused[key], self._version)
            else:
                self.entries.append((key, records._replace(guard=guards[key]) if key in guards else records))
                self._answers.append(answer)

    async def validate(self) -> None:
        """Refuse what does not fit its schema, or have it go elsewhere, where the topic asks for that; the request
        keeps its place meanwhile."""
        rules = self._context.broker.schema_validation.rules
        entries, answers = self.entries, self._answers
        self.entries, self._answers = [], []
        for (key, records), answer in zip(entries, answers, strict=True):
            rule = rules.get(key.topic_id)
            try:
                fitting = records if rule is None else await self._fitting(rule, key, records)
            except (ReplicaError, storage.StorageError) as error:
                self._fail(key, answer, error)
            else:
                self.entries.append((key, fitting))
                self._answers.append(answer)

    async def _fitting(self, rule: SchemaRule, key: TopicIdPartition, records: Records) -> Records:
        """The records if all of them fit, else what is left when the others have gone to the dead-letter topic."""
        broker = self._context.broker
        misfits = await broker.schema_validation.misfits(rule, records.view)
        if misfits is None:
            return records
        if not rule.dead_letter_topic:
            raise misfits.refusal()
        access, request = self._context.access, self._request
        sender = Sender(
            lambda name: access is None or access.allows(AclOperation.WRITE, AclResource.TOPIC, name),
            request.acks,
            request.timeout_ms,
            is_verified=request.transactional_id is not None,
        )
        partition = broker.replica_manager.get_partition(*key)
        left = await broker.dead_letter_topics.divert(rule, partition, records, misfits, sender)
        # The letters may have waited for replicas. A producer that has given up meanwhile sends the batch again.
        self._context.connection.held_up()
        return left

    def _joined_log(self, key: TopicIdPartition, records: memoryview) -> PartitionLog | None:
        """The log into which a batch brings its producer's transaction; None for any other batch."""
        if not is_transactional(records) or producer_of(records).producer_id == NO_PRODUCER_ID:
            return None
        if (log := self._log(key)) is None:
            return None
        return log if log.producers is None or log.producers.needs_verification(*producer_of(records)) else None

    def _is_valid(self, key: TopicIdPartition, producer: ProducerIdAndEpoch, guard: VerificationGuard | None) -> bool:
        log = self._log(key)
        return log is None or (log.producers is not None and log.producers.admits(*producer, guard))

    def _log(self, key: TopicIdPartition) -> PartitionLog | None:
        """None if it cannot be had: the append will say why."""
        try:
            return self._context.broker.replica_manager.get_partition(*key).log
        except (ReplicaError, storage.StorageError):
            return None

    def _partition(self, key: TopicIdPartition) -> Partition:
        topic = self._context.broker.metadata.topic_by_id(key.topic_id)
        return Partition("" if topic is None else topic.name, key.partition)

    @property
    def is_ready(self) -> bool:
        return self.operation is None or self.operation.try_complete() is not None

    def watch(self, ready: Callable[[], None]) -> None:
        """The acknowledgements that were asked for are there, or their time is over."""
        assert self.operation is not None
        self._watch = self._context.broker.replica_manager.watch_append(self.operation, ready)

    def give_up(self) -> None:
        """The appended records stay, and are not answered."""
        if self._watch is not None:
            self._watch.leave()

    def response(self) -> ProduceResponse:
        """Fill the answers."""
        if self.operation is None:
            return self._response
        for answer, entry, result in zip(self._answers, self.entries, self.operation.results, strict=True):
            answer.base_offset = result.base_offset
            answer.log_append_time_ms = result.log_append_time_ms
            answer.log_start_offset = result.log_start_offset
            if result.error is not None:
                self._fail(entry[0], answer, result.error)
        return self._response

    def _fail(self, key: TopicIdPartition, answer: ProducedPartition, error: Exception) -> None:
        code = error_code(error)
        if code is ErrorCode.UNKNOWN_TOPIC_ID and self._version < _FIRST_VERSION_BY_ID:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        answer.error_code = code
        if isinstance(error, storage.RefusedRecordsError):
            answer.error_message = error_message(error)
            answer.record_errors = [
                BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=reason)
                for index, reason in error.refused
            ]
        if code is ErrorCode.NOT_LEADER_OR_FOLLOWER and self._version >= _FIRST_VERSION_WITH_LEADERS:
            self._name_leader(key.topic_id, answer)

    def _name_leader(self, topic_id: UUID, answer: ProducedPartition) -> None:
        hint = leader_hint(self._context, topic_id, answer.index)
        answer.current_leader = LeaderIdAndEpoch(leader_id=hint.leader_id, leader_epoch=hint.leader_epoch)
        endpoints = self._response.node_endpoints
        if hint.endpoint is not None and all(known.node_id != hint.leader_id for known in endpoints):
            endpoints.append(
                NodeEndpoint(
                    node_id=hint.leader_id,
                    host=hint.endpoint.host,
                    port=hint.endpoint.port,
                    rack=None if hint.broker is None else hint.broker.rack,
                )
            )

    def first_error(self) -> ErrorCode:
        """The first partition's error, NONE if all went well."""
        for topic in self._response.responses:
            for answer in topic.partition_responses:
                if answer.error_code:
                    return ErrorCode(answer.error_code)
        return ErrorCode.NONE
