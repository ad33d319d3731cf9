"""One member of a share group: it is assigned partitions, acquires their records, and says what became of them."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final

from ottla.client.errors import ClientError, ConnectionLostError
from ottla.client.offsets import TopicPartition
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.share.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla.pipeline.client import ClientSettings, Cluster
from ottla.pipeline.client.answers import RetriableError, check
from ottla.pipeline.client.cluster import CoordinatorType
from ottla.pipeline.errors import PipelineError, TopicError
from ottla.pipeline.share.deliveries import Deliveries, Run, SharePartition, left_of
from ottla.pipeline.share.session import Acknowledged, FetchLimits, Outcome, ShareSession

__all__ = ["ShareMember"]

_log = logging.getLogger(__name__)

_JOIN: Final = 0
_LEAVE: Final = -1
_HEARTBEAT: Final = 1
_FIRST_INTERVAL_MS: Final = 1_000
_DEFAULT_LOCK_MS: Final = 30_000


class ShareMember:
    """A member with a session at each leader of its partitions. For one thread at a time.

    What it acquires stays its own until it is acknowledged, its lock ends without `renew`, or its session ends with its
    connection. Every call ends within the settings' `default_api_timeout_ms`; PipelineError if nobody answered.
    """

    def __init__(self, client: ClientSettings, group: str, topics: tuple[str, ...]) -> None:
        self.cluster = Cluster(client)
        self.group = group
        self.heartbeat_interval_ms = _FIRST_INTERVAL_MS
        self._topics = topics
        self._member_id = str(uuid.uuid4())
        self._epoch = _JOIN
        self._assigned: dict[str, list[int]] | None = None
        self._names: dict[str, str] = {}
        self._sessions: dict[tuple[str, int], ShareSession] = {}
        self._held: dict[SharePartition, tuple[ShareSession, list[Run]]] = {}
        self._has_said_no_renewal = False

    @property
    def lock_timeout_ms(self) -> int:
        """How long records are locked, as far as the brokers have said it."""
        return min((s.lock_timeout_ms for s in self._sessions.values() if s.lock_timeout_ms), default=_DEFAULT_LOCK_MS)

    @property
    def is_assigned(self) -> bool:
        """Whether the coordinator has said which partitions are this member's."""
        return bool(self._assigned)

    def assigned(self) -> list[SharePartition]:
        """The partitions that are this member's, of topics that exist now."""
        wanted = self._assigned or {}
        if any(topic_id not in self._names for topic_id in wanted):
            self._names = {topic_id: name for name, topic_id in self.cluster.topic_ids(self._topics).items()}
        return [
            SharePartition(self._names[topic_id], topic_id, number)
            for topic_id, numbers in wanted.items()
            if topic_id in self._names
            for number in numbers
        ]

    def heartbeat(self) -> None:
        """Join the group, or stay in it; the answer may assign other partitions."""

        def ask() -> None:
            request = ShareGroupHeartbeatRequest(
                group_id=self.group,
                member_id=self._member_id,
                member_epoch=self._epoch,
                subscribed_topic_names=list(self._topics) if self._epoch == _JOIN else None,
            )
            answer = self.cluster.call_coordinator(CoordinatorType.GROUP, self.group, request, _HEARTBEAT)
            if answer.error_code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH):
                self._epoch = _JOIN
                raise RetriableError(f"Share group {self.group} has put this member out")
            if answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
                self._epoch = _JOIN
                raise RetriableError(f"Share group {self.group} was deleted")
            check(answer.error_code, f"share group {self.group}")
            self._epoch = answer.member_epoch
            self.heartbeat_interval_ms = answer.heartbeat_interval_ms
            if answer.assignment is not None:
                self._assigned = {
                    str(topic.topic_id): list(topic.partitions) for topic in answer.assignment.topic_partitions
                }

        self.cluster.retry(ask)

    def fetch(self, max_records: int, max_wait_ms: int) -> Deliveries:
        """Acquire at most so many records, of all leaders at once; nothing if there is nothing to be had."""

        def ask() -> Deliveries:
            return self._fetch(max_records, max_wait_ms)

        return self.cluster.retry(ask)

    def acknowledge(self, acknowledged: Acknowledged) -> set[SharePartition]:
        """Say what becomes of records that are held; the partitions where the broker did not take it.

        There the locks were lost, or nobody knows whether the broker has heard it: the records may come again.
        """
        refused = set(acknowledged)
        for session, parts in self._by_session(acknowledged).items():
            refused -= self._acknowledge(session, parts)
        for part, runs in acknowledged.items():
            self._forget(part, runs)
        return refused

    def renew(self) -> None:
        """Prolong the locks of all that is held (KIP-1222)."""
        for session, parts in self._by_session(self._all_held(Outcome.RENEW)).items():
            if not session.can_renew:
                self._say_no_renewal("the broker does not know how (Apache Kafka 4.2 does)")
                continue
            try:
                codes = session.acknowledge(parts, renew=True)
            except ConnectionLostError:
                session.close()
                continue
            if bad := {code for code in codes.values() if code}:
                self._say_no_renewal(", ".join(sorted(ErrorCode(code).name for code in bad)))

    def release_held(self) -> None:
        """Give back what is held. It counts as delivered."""
        if self._held:
            self.acknowledge(self._all_held(Outcome.RELEASE))

    def close(self) -> None:
        """Give back what is held, leave the group, and let go of all connections. Whom it cannot reach is left."""
        with suppress(ClientError, PipelineError, RetriableError):
            self.release_held()
        for session in self._sessions.values():
            with suppress(ClientError, PipelineError, RetriableError):
                session.end()
            session.close()
        self._sessions.clear()
        with suppress(ClientError, PipelineError, RetriableError):
            if self._epoch != _JOIN:
                request = ShareGroupHeartbeatRequest(
                    group_id=self.group, member_id=self._member_id, member_epoch=_LEAVE, subscribed_topic_names=None
                )
                self.cluster.call_coordinator(CoordinatorType.GROUP, self.group, request, _HEARTBEAT)
        self.cluster.close()

    def _fetch(self, max_records: int, max_wait_ms: int) -> Deliveries:
        parts = self.assigned()
        by_leader: dict[tuple[str, int], list[SharePartition]] = {}
        for part in parts:
            address = self._leader(part)
            if address is not None:
                by_leader.setdefault(address, []).append(part)
        # A limit holds for all leaders together: each is asked for its share.
        limits = FetchLimits(
            max(1, max_records // max(1, len(by_leader))), self.cluster.settings.fetch_max_bytes, max_wait_ms
        )
        failure: ConnectionLostError | RetriableError | None = None
        asked = []
        for address, wanted in by_leader.items():
            try:
                session = self._session(address)
                session.send_fetch(wanted, limits)
                asked.append(session)
            except ConnectionLostError as error:
                failure = self._lost(address, error)
        found: Deliveries = {}
        for session in asked:
            try:
                acquired = session.receive_fetch()
            except (ConnectionLostError, RetriableError) as error:
                session.close()
                failure = error
                continue
            for part, deliveries in acquired.items():
                self._hold(session, part, deliveries)
            found |= acquired
            if session.take_moved():
                self.cluster.forget_leaders()
        if failure is not None and not found:
            raise failure
        return found

    def _leader(self, part: SharePartition) -> tuple[str, int] | None:
        try:
            return self.cluster.leader_address(TopicPartition(part.topic, part.partition))
        except TopicError:
            # The topic is being deleted: the next assignment is without it.
            self._names.pop(part.topic_id, None)
            return None

    def _session(self, address: tuple[str, int]) -> ShareSession:
        session = self._sessions.get(address)
        if session is None or session.is_over:
            session = ShareSession(self.cluster.open(address), self.group, self._member_id)
            self._sessions[address] = session
        return session

    def _lost(self, address: tuple[str, int], error: ConnectionLostError) -> ConnectionLostError:
        if (session := self._sessions.pop(address, None)) is not None:
            session.close()
        self.cluster.forget_leaders()
        return error

    def _by_session(self, acknowledged: Acknowledged) -> dict[ShareSession, dict[SharePartition, list[Run]]]:
        """What is to be said to whom; nothing to those whose session has ended, and the locks with it."""
        found: dict[ShareSession, dict[SharePartition, list[Run]]] = {}
        for part, runs in acknowledged.items():
            session, _ = self._held.get(part, (None, ()))
            if session is not None and not session.is_over:
                found.setdefault(session, {})[part] = list(runs)
        return found

    def _acknowledge(self, session: ShareSession, parts: Mapping[SharePartition, list[Run]]) -> set[SharePartition]:
        try:
            codes = session.acknowledge(parts)
        except (ConnectionLostError, RetriableError) as error:
            session.close()
            _log.warning("What became of records of share group %s could not be said: %s", self.group, error)
            return set()
        for part, code in codes.items():
            if code:
                name = ErrorCode(code).name
                _log.warning("What became of records of %s was refused by share group %s: %s", part, self.group, name)
        return {part for part, code in codes.items() if not code}

    def _all_held(self, outcome: Outcome) -> dict[SharePartition, list[Run]]:
        return {
            part: [Run(first, last, outcome) for first, last, _ in deliveries]
            for part, (_, deliveries) in self._held.items()
        }

    def _hold(self, session: ShareSession, part: SharePartition, deliveries: list[Run]) -> None:
        """Note what was acquired. What was so by an earlier session is not held any more."""
        holder, held = self._held.get(part, (session, []))
        self._held[part] = session, [*(held if holder is session else ()), *deliveries]

    def _forget(self, part: SharePartition, runs: Iterable[Run]) -> None:
        session, held = self._held.get(part, (None, []))
        left = left_of(held, runs)
        if session is not None and left:
            self._held[part] = session, left
        else:
            self._held.pop(part, None)

    def _say_no_renewal(self, why: str) -> None:
        if not self._has_said_no_renewal:
            self._has_said_no_renewal = True
            _log.warning(
                "Locks of share group %s are not renewed (%s): a batch that takes longer than %d ms is delivered again",
                self.group,
                why,
                self.lock_timeout_ms,
            )
