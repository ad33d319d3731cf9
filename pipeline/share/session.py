"""A share session: what one member and one leader say to each other, on a connection of their own."""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection, Iterable, Mapping
from enum import IntEnum
from typing import Any, Final, NamedTuple

from ottla.client.connection import BrokerConnection
from ottla.client.errors import ConnectionLostError
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.share.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from ottla.kproto.messages.share.share_fetch import FetchPartition, FetchTopic, ForgottenTopic, ShareFetchRequest
from ottla.pipeline.client.answers import RetriableError, check
from ottla.pipeline.share.deliveries import Deliveries, Run, SharePartition

__all__ = ["Acknowledged", "FetchLimits", "Outcome", "ShareSession"]

_FINAL_EPOCH: Final = -1
_RECORD_LIMIT: Final = 1
_FIRST_WITH_RENEWAL: Final = 2
_SESSION_IS_OVER: Final = (
    ErrorCode.SHARE_SESSION_NOT_FOUND,
    ErrorCode.INVALID_SHARE_SESSION_EPOCH,
    ErrorCode.SHARE_SESSION_LIMIT_REACHED,
)


class Outcome(IntEnum):
    """What becomes of a delivered record, by Kafka's numbers (AcknowledgeType)."""

    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class FetchLimits(NamedTuple):
    """How much one share fetch may bring, and how long it waits."""

    max_records: int
    max_bytes: int
    max_wait_ms: int


Acknowledged = Mapping[SharePartition, Iterable[Run]]
"""Runs of offsets; their `count` is an Outcome."""


class ShareSession:
    """One session, with the leader at the end of `connection`; for one thread at a time.

    It ends with its connection, and the broker then gives what the member holds to others. ConnectionLostError also
    where the broker says that the session is over.
    """

    def __init__(self, connection: BrokerConnection, group: str, member_id: str) -> None:
        self.is_over = False
        #: How long what was acquired last is locked, as the broker said.
        self.lock_timeout_ms = 0
        self._has_moved = False
        self._connection = connection
        self._group = group
        self._member_id = member_id
        self._epoch = 0
        self._known: dict[tuple[str, int], SharePartition] = {}

    @property
    def can_renew(self) -> bool:
        """Whether the broker knows the renewal of locks (KIP-1222)."""
        return self._connection.version(ApiKey.SHARE_ACKNOWLEDGE) >= _FIRST_WITH_RENEWAL

    def send_fetch(self, wanted: Collection[SharePartition], limits: FetchLimits) -> None:
        """Ask for records of these partitions; `receive_fetch` takes the answer."""
        asked = {(part.topic_id, part.partition): part for part in wanted}
        new = [part for key, part in asked.items() if key not in self._known]
        gone = [part for key, part in self._known.items() if key not in asked]
        request = ShareFetchRequest(
            group_id=self._group,
            member_id=self._member_id,
            share_session_epoch=self._epoch,
            max_wait_ms=limits.max_wait_ms,
            min_bytes=1,
            max_bytes=limits.max_bytes,
            max_records=limits.max_records,
            batch_size=limits.max_records,
            share_acquire_mode=_RECORD_LIMIT,
            topics=[
                FetchTopic(
                    topic_id=uuid.UUID(topic_id),
                    partitions=[FetchPartition(partition_index=number) for number in numbers],
                )
                for topic_id, numbers in _by_topic(new).items()
            ],
            forgotten_topics_data=[
                ForgottenTopic(topic_id=uuid.UUID(topic_id), partitions=numbers)
                for topic_id, numbers in _by_topic(gone).items()
            ],
        )
        self._connection.send(request)
        self._known = asked

    def receive_fetch(self) -> Deliveries:
        """What was acquired. The records themselves are not kept: tasks read them."""
        answer = self._answer()
        self.lock_timeout_ms = answer.acquisition_lock_timeout_ms or self.lock_timeout_ms
        found: Deliveries = {}
        for topic in answer.responses:
            for entry in topic.partitions:
                part = self._known.get((str(topic.topic_id), entry.partition_index))
                if part is None:
                    continue
                try:
                    check(entry.error_code, f"partition {part}")
                except RetriableError:
                    self._has_moved = True
                if entry.acquired_records:
                    found[part] = [
                        Run(each.first_offset, each.last_offset, each.delivery_count) for each in entry.acquired_records
                    ]
        if answer.throttle_time_ms and not found:
            time.sleep(answer.throttle_time_ms / 1000)
        return found

    def take_moved(self) -> bool:
        """Whether a partition has got another leader since the last call."""
        moved, self._has_moved = self._has_moved, False
        return moved

    def acknowledge(self, acknowledged: Acknowledged, *, renew: bool = False) -> dict[SharePartition, int]:
        """Say what becomes of records; the error code of each partition."""
        asked = {(part.topic_id, part.partition): part for part in acknowledged}
        topics: dict[str, list[AcknowledgePartition]] = {}
        for part, runs in acknowledged.items():
            batches = [
                AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[outcome])
                for first, last, outcome in runs
            ]
            topics.setdefault(part.topic_id, []).append(
                AcknowledgePartition(partition_index=part.partition, acknowledgement_batches=batches)
            )
        request = ShareAcknowledgeRequest(
            group_id=self._group,
            member_id=self._member_id,
            share_session_epoch=self._epoch,
            is_renew_ack=renew,
            topics=[
                AcknowledgeTopic(topic_id=uuid.UUID(topic_id), partitions=held) for topic_id, held in topics.items()
            ],
        )
        self._connection.send(request)
        answer = self._answer()
        codes = dict.fromkeys(acknowledged, int(ErrorCode.NONE))
        for topic in answer.responses:
            for entry in topic.partitions:
                if (found := asked.get((str(topic.topic_id), entry.partition_index))) is not None:
                    codes[found] = entry.error_code
        return codes

    def end(self) -> None:
        """End the session; what the member still holds is given back."""
        if not self.is_over:
            self._connection.send(
                ShareAcknowledgeRequest(
                    group_id=self._group, member_id=self._member_id, share_session_epoch=_FINAL_EPOCH, topics=[]
                )
            )
            self._connection.receive()
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self.is_over = True
        self._connection.close()

    def _answer(self) -> Any:
        answer = self._connection.receive()
        if answer.error_code in _SESSION_IS_OVER:
            self.close()
            raise ConnectionLostError(f"the share session is over: {ErrorCode(answer.error_code).name}")
        check(answer.error_code, f"share group {self._group}")
        self._epoch = 1 if self._epoch == (1 << 31) - 1 else self._epoch + 1
        return answer


def _by_topic(parts: Iterable[SharePartition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for part in parts:
        found.setdefault(part.topic_id, []).append(part.partition)
    return found
