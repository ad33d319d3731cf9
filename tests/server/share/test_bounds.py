"""What members of share groups may make a node keep, and work on at once."""

from __future__ import annotations

from uuid import UUID

import pytest

from ottla.replica.append import TopicIdPartition
from ottla.server.share.errors import InvalidRecordStateError, ShareSessionLimitReachedError
from ottla.server.share.in_flight import ACCEPT, RELEASE, RENEW, InFlight
from ottla.server.share.records import Acknowledgement, Lock, Span, Transition
from ottla.server.share.sessions import SessionKey, ShareSessions

TOPIC = UUID(int=7)
KEY = SessionKey("g", "m")


def partitions(*indexes: int) -> dict[TopicIdPartition, None]:
    return {TopicIdPartition(TOPIC, index): None for index in indexes}


def fetch(sessions: ShareSessions, epoch: int, *indexes: int, key: SessionKey = KEY) -> list[int]:
    session = sessions.fetch(key, epoch, partitions(*indexes), has_acknowledgements=False, owner=None)
    assert session is not None
    return [partition.partition for partition in session.partitions]


def test_sessions_have_so_many_partitions_together() -> None:
    sessions = ShareSessions(10, max_partitions=5)
    assert fetch(sessions, 0, 1, 2, 3) == [1, 2, 3]
    with pytest.raises(ShareSessionLimitReachedError):
        fetch(sessions, 0, 1, 2, 3, key=SessionKey("g", "n"))
    assert fetch(sessions, 1, 4, 5) == [1, 2, 3, 4, 5]
    with pytest.raises(ShareSessionLimitReachedError):
        fetch(sessions, 2, 6)
    # The request did not count, and one that adds nothing is served.
    assert fetch(sessions, 2) == [1, 2, 3, 4, 5]


def test_what_a_session_knows_of_its_partitions_stays() -> None:
    sessions = ShareSessions(10)
    fetch(sessions, 0, 1, 2)
    session = sessions.fetch(KEY, 1, partitions(2, 3), has_acknowledgements=False, owner=None)
    assert session is not None
    session.partitions[TopicIdPartition(TOPIC, 2)] = True
    assert fetch(sessions, 2, 1, 2, 4) == [1, 2, 3, 4]
    assert [partition.partition for partition, is_told in session.partitions.items() if is_told] == [2]
    session.forget(TopicIdPartition(TOPIC, 3))
    session.forget(TopicIdPartition(TOPIC, 9))
    assert fetch(sessions, 3) == [1, 2, 4]


def acquired(in_flight: InFlight, span: Span, *, fetch_offset: int) -> list[tuple[int, int]]:
    taken = in_flight.acquire("m", fetch_offset, [span], max_records=10, batch_size=10)
    return [(each.first, each.last) for each in taken]


def test_no_more_records_are_in_flight_than_may_be_however_large_their_batch_is() -> None:
    in_flight = InFlight(0, max_records=100, max_delivery_count=5)
    batch = Span(0, 2_000_000)
    assert acquired(in_flight, batch, fetch_offset=0) == [(0, 99)]
    assert not in_flight.can_acquire()
    transition = in_flight.acknowledge("m", [Acknowledgement(0, 59, [ACCEPT])])
    in_flight.complete(transition, stored=True)
    assert in_flight.start_offset == 60
    assert acquired(in_flight, batch, fetch_offset=in_flight.next_fetch_offset()) == [(100, 159)]
    assert in_flight.count == 100


def test_a_batch_that_fits_is_given_whole() -> None:
    in_flight = InFlight(0, max_records=100, max_delivery_count=5)
    assert acquired(in_flight, Span(0, 49), fetch_offset=0) == [(0, 49)]


def test_what_is_said_of_records_before_the_start_is_passed_over() -> None:
    in_flight = InFlight(50, max_records=100, max_delivery_count=5)
    acquired(in_flight, Span(50, 59), fetch_offset=50)
    types = [ACCEPT, RELEASE] * 30
    transition = in_flight.acknowledge("m", [Acknowledgement(0, 59, types)])
    assert [(run.first, run.last) for run in transition.runs] == [(offset, offset) for offset in range(50, 60)]
    in_flight.complete(transition, stored=False)
    with pytest.raises(InvalidRecordStateError):
        in_flight.acknowledge("n", [Acknowledgement(0, 59, types)])
    assert in_flight.count == 10


def test_a_lock_goes_on_while_more_is_put_under_it() -> None:
    """A member renews its hold on many records, and says meanwhile, by another request, that the first are done."""
    freed: list[Lock] = []

    class NotedLock(Lock):
        def free(self) -> None:
            freed.append(self)

    in_flight = InFlight(0, max_records=100, max_delivery_count=5, new_lock=NotedLock)
    in_flight.acquire("m", 0, [Span(0, 99)], max_records=100, batch_size=100)
    former = {run.lock for run in in_flight.runs()}
    transition = Transition()
    steps = in_flight.acknowledging(transition, "m", [Acknowledgement(0, 99, [RENEW, ACCEPT] * 50)])
    next(steps)
    renewed = [run.first for run in in_flight.runs() if run.lock not in former]
    assert renewed
    done = in_flight.acknowledge("m", [Acknowledgement(offset, offset, [ACCEPT]) for offset in renewed])
    in_flight.complete(done, stored=True)
    for _ in steps:
        pass
    in_flight.complete(transition, stored=True)
    held = {run.lock for run in in_flight.runs() if run.lock is not None}
    assert len(held) == 1
    assert held.isdisjoint(freed)  # who is freed never ends
