"""ShareFetch (78): acquire records for a member of a share group, and acknowledge earlier ones (KIP-932).

- Versions 1 and 2; 2 adds the strict limit of records (KIP-1206) and the renewal of locks (KIP-1222), whose requests
  fetch nothing.
- A session belongs to a member and a connection. Epoch 0 begins it, -1 ends it and gives back what the member holds;
  in between a request names only what changes.
- What is acknowledged is stored before anything is fetched, and is answered for each partition on its own.
- Whole record batches are returned; `acquired_records` says which of their records are the member's now. The answer
  waits for min_bytes or max_wait_ms.
- Up to the high watermark, or the last stable offset where the group's `share.isolation.level` says so: records of
  aborted transactions are never acquired then.
- From the second request of a session on, a partition is named only if there is something to say about it.
"""

from __future__ import annotations

from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Final

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.share.share_fetch import (
    AcquiredRecords,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from ottla.metadata.acls import AclOperation, AclResource
from ottla.metadata.errors import TopicNotAuthorizedError
from ottla.replica.append import TopicIdPartition
from ottla.replica.partition import Isolation
from ottla.server.apis.declaration import Api
from ottla.server.apis.errors import error_code, error_message
from ottla.server.apis.groups.group_protocols import GroupProtocol
from ottla.server.apis.rules import Named, Rule
from ottla.server.apis.share import share_requests
from ottla.server.share.errors import ShareError, ShareSessionLimitReachedError
from ottla.server.share.fetch import ShareFetchParams, ShareFetchResult
from ottla.server.share.sessions import INITIAL_EPOCH

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from ottla.kproto.messages.share.share_fetch import AcknowledgementBatch
    from ottla.server.apis.context import RequestContext
    from ottla.server.share.sessions import SessionKey, ShareSession

API = Api(ApiKey.SHARE_FETCH, Rule([Named(AclOperation.READ, AclResource.GROUP, "group_id")]), may_wait=True)

#: Modes of acquiring (KIP-1206): whole batches, or no record beyond `max_records`.
_BATCH_OPTIMIZED: Final = 0
_RECORD_LIMIT: Final = 1


async def handle(request: ShareFetchRequest, context: RequestContext) -> ShareFetchResponse:
    if not GroupProtocol.SHARE.is_enabled(context):
        return ShareFetchResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    key = share_requests.session_key(request.group_id, request.member_id)
    refusal = _refusal(request, key)
    if key is None or refusal is not None:
        return ShareFetchResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=refusal)
    manager = context.broker.share.manager
    asked = {
        TopicIdPartition(topic.topic_id, each.partition_index): each.acknowledgement_batches
        async for topic in context.work.over(request.topics, counts=False)
        async for each in context.work.over(topic.partitions, counts=False)
    }
    # As in Kafka, with one acknowledgement all partitions that are named are acknowledged, most of them with nothing.
    acknowledges = any([bool(batches) async for batches in context.work.over(asked.values(), counts=False)])
    acknowledged = asked if acknowledges else {}
    context.work.leave(asked)
    try:
        session = manager.sessions.fetch(
            key,
            request.share_session_epoch,
            asked,
            has_acknowledgements=acknowledges,
            owner=context.connection,
        )
    except ShareError as error:
        if isinstance(error, ShareSessionLimitReachedError):
            # The client asks again at once: let it wait as long as it would for records.
            context.leave_queue()
            purgatory = context.broker.replica_manager.share_fetch_purgatory
            # Nobody signals the key: it only lets the end of the purgatory find the waiting request.
            await purgatory.wait([key], lambda: None, request.max_wait_ms)
        return ShareFetchResponse(error_code=error_code(error), error_message=error_message(error))
    if session is not None and request.forgotten_topics_data:
        await _forget(session, request, context)
    if session is not None and session.epoch == 1:
        context.connection.on_close(manager, partial(manager.connection_closed, context.connection))
    outcomes = await _acknowledge(request, key, acknowledged, context)
    results: list[ShareFetchResult] = []
    if session is None:
        await manager.release(key)
    elif request.share_acquire_mode not in (_BATCH_OPTIMIZED, _RECORD_LIMIT):
        # As in Kafka the session has gone on, and what was acknowledged is.
        message = f"Unknown share acquire mode {request.share_acquire_mode}."
        return ShareFetchResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=message)
    elif not request.is_renew_ack:
        results = await _fetch(session, request, context)
    for result in results:
        if result.records is not None:
            context.release_after_send(result)
    context.work.leave(results, outcomes)
    response = ShareFetchResponse(acquisition_lock_timeout_ms=manager.config(key.group_id).lock_duration_ms)
    await _fill(response, results, outcomes, session, context)
    return response


def _refusal(request: ShareFetchRequest, key: SessionKey | None) -> str | None:
    if request.group_id is None:
        return "Invalid group id in the request."
    if key is None:
        return "Invalid member id in the request."
    if request.is_renew_ack:
        limits = {
            "max bytes": request.max_bytes,
            "min bytes": request.min_bytes,
            "max records": request.max_records,
            "max wait ms": request.max_wait_ms,
        }
        set_ones = [f"{name} is {value}" for name, value in limits.items() if value]
        if set_ones:
            return f"A request that renews locks fetches nothing, but {', '.join(set_ones)}."
    return None


async def _acknowledge(
    request: ShareFetchRequest,
    key: SessionKey,
    acknowledged: Mapping[TopicIdPartition, list[AcknowledgementBatch]],
    context: RequestContext,
) -> dict[TopicIdPartition, Exception | None]:
    if not acknowledged:
        return {}
    may_renew = context.header.api_version >= share_requests.FIRST_VERSION_WITH_RENEWAL and request.is_renew_ack
    return await share_requests.acknowledge(key, acknowledged, context, may_renew=may_renew)


async def _forget(session: ShareSession, request: ShareFetchRequest, context: RequestContext) -> None:
    """Behind what is added, as in Kafka; a session that begins has nothing to forget."""
    if request.share_session_epoch == INITIAL_EPOCH:
        return
    async for topic in context.work.over(request.forgotten_topics_data, counts=False):
        async for index in context.work.over(topic.partitions, counts=False):
            session.forget(TopicIdPartition(topic.topic_id, index))


async def _fetch(session: ShareSession, request: ShareFetchRequest, context: RequestContext) -> list[ShareFetchResult]:
    """Fetch from the session's partitions, except those that the member may not read."""
    params = _params(request, context)
    denied, allowed = [], []
    async for partition in context.work.over(session.rotated(), counts=False):
        if share_requests.may_read(partition, context):
            allowed.append(partition)
        else:
            denial = TopicNotAuthorizedError("Topic authorization failed.")
            denied.append(ShareFetchResult(partition, None, denial))
    manager = context.broker.share.manager
    return denied + await manager.fetch(session.key.group_id, params, allowed, before_wait=context.leave_queue)


def _params(request: ShareFetchRequest, context: RequestContext) -> ShareFetchParams:
    broker = context.broker
    max_bytes = min(request.max_bytes, broker.config.fetch_max_bytes)
    if broker.quotas.is_active:
        max_bytes = int(min(max_bytes, broker.quotas.most_fetched_bytes(context)))
    assert request.group_id is not None
    assert request.member_id is not None
    is_read_committed = broker.share.manager.config(request.group_id).is_read_committed
    return ShareFetchParams(
        member_id=request.member_id,
        max_wait_ms=request.max_wait_ms,
        min_bytes=min(request.min_bytes, max_bytes),
        max_bytes=max_bytes,
        max_records=request.max_records,
        batch_size=max(1, request.batch_size),
        is_strict=request.share_acquire_mode == _RECORD_LIMIT,
        isolation=Isolation.TXN_COMMITTED if is_read_committed else Isolation.HIGH_WATERMARK,
    )


async def _fill(
    response: ShareFetchResponse,
    results: list[ShareFetchResult],
    outcomes: Mapping[TopicIdPartition, Exception | None],
    session: ShareSession | None,
    context: RequestContext,
) -> None:
    """Add the partitions about which there is something to say, those of one topic under one id."""
    topics: dict[UUID, ShareFetchableTopicResponse] = {}
    fetched = {result.key: result async for result in context.work.over(results, counts=False)}
    context.work.leave(fetched)
    async for partition in context.work.over(chain(fetched, (it for it in outcomes if it not in fetched))):
        result = fetched.get(partition)
        is_new = session is not None and session.partitions.get(partition) is False
        if partition not in outcomes and result is not None and not (is_new or result.acquired or result.error):
            continue
        if session is not None and partition in session.partitions:
            session.partitions[partition] = True
        topic = topics.get(partition.topic_id)
        if topic is None:
            topic = topics[partition.topic_id] = ShareFetchableTopicResponse(topic_id=partition.topic_id)
            response.responses.append(topic)
        topic.partitions.append(_partition_data(partition, result, outcomes.get(partition), response, context))


def _partition_data(
    partition: TopicIdPartition,
    result: ShareFetchResult | None,
    refused: Exception | None,
    response: ShareFetchResponse,
    context: RequestContext,
) -> PartitionData:
    data = PartitionData(partition_index=partition.partition, records=b"")
    error = None if result is None else result.error
    if error is not None:
        data.error_code, data.error_message = share_requests.partition_error_code(error), error_message(error)
    elif result is not None and result.records is not None:
        data.records = result.records
        data.acquired_records = [
            AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)
            for first, last, count in result.acquired
        ]
    if refused is not None:
        data.acknowledge_error_code = share_requests.partition_error_code(refused)
        data.acknowledge_error_message = error_message(refused)
    leader = share_requests.leader_now(context, partition, error or refused)
    if leader is not None:
        data.current_leader = LeaderIdAndEpoch(leader_id=leader.leader_id, leader_epoch=leader.leader_epoch)
        if leader.endpoint is not None and all(known.node_id != leader.leader_id for known in response.node_endpoints):
            node_id, host, port, rack = leader.endpoint
            response.node_endpoints.append(NodeEndpoint(node_id=node_id, host=host, port=port, rack=rack))
    return data
