"""What clients have asked: noted, found, counted, waited for; and answers that a test writes."""

from __future__ import annotations

import threading
from contextlib import closing

import pytest
import trio

from ottla.client.connection import BrokerConnection
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.groups.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.kproto.messages.groups.heartbeat import HeartbeatRequest
from ottla.kproto.messages.topics.metadata import MetadataRequest, MetadataRequestTopic
from ottla.testing import Broker, BrokerError, WaitTimeoutError


def heartbeat(connection: BrokerConnection, group: str) -> ErrorCode:
    return ErrorCode(connection.call(HeartbeatRequest(group_id=group, member_id="m", generation_id=1)).error_code)


@pytest.fixture
def connection(broker: Broker) -> BrokerConnection:
    connection = BrokerConnection("127.0.0.1", broker.port, 30)
    broker.requests.clear()
    return connection


def test_requests_are_noted_with_what_they_name(broker: Broker, connection: BrokerConnection) -> None:
    broker.create_topic("orders")  # the fixture's own requests are not noted
    with closing(connection):
        heartbeat(connection, "g")
        connection.call(MetadataRequest(topics=[MetadataRequestTopic(name="orders")]), at_most=9)
        heartbeat(connection, "h")

    assert [(each.api, each.topics) for each in broker.requests if each.api != "ApiVersions"] == [
        ("Heartbeat", ()),
        ("Metadata", ("orders",)),
        ("Heartbeat", ()),
    ]
    assert [each.fields["group_id"] for each in broker.requests.find("heartbeat")] == ["g", "h"]
    assert broker.requests.count("Heartbeat", where=lambda request: request.fields["group_id"] == "h") == 1
    (metadata,) = broker.requests.find(topic="orders")
    assert metadata.version == 9
    with pytest.raises(ValueError, match="there is no API 'Heartbeats'"):
        broker.requests.find("Heartbeats")


def test_a_request_is_waited_for(broker: Broker, connection: BrokerConnection) -> None:
    with closing(connection):
        sender = threading.Thread(target=lambda: [heartbeat(connection, "g") for _ in range(3)])
        sender.start()
        assert len(broker.requests.wait_for("Heartbeat", 3)) == 3
        sender.join()
        with pytest.raises(WaitTimeoutError, match=r"0 of 1 requests SyncGroup after 0 s; .*Heartbeat 4"):
            broker.requests.wait_for("SyncGroup", timeout_s=0)

        async def main() -> None:
            assert await broker.requests.wait_for_async("Heartbeat", 2)

        trio.run(main)


def test_a_reset_forgets_them(broker: Broker, connection: BrokerConnection) -> None:
    with closing(connection):
        heartbeat(connection, "g")
        broker.reset()
        assert broker.requests.count() == 0
        assert not list(broker.requests)


def test_a_struck_request_is_noted(broker: Broker, connection: BrokerConnection) -> None:
    broker.faults.fail("Heartbeat", "REBALANCE_IN_PROGRESS")
    with closing(connection):
        assert heartbeat(connection, "g") is ErrorCode.REBALANCE_IN_PROGRESS
    assert broker.requests.count("Heartbeat") == 1


def test_a_test_writes_the_next_answer(broker: Broker, connection: BrokerConnection) -> None:
    elsewhere = FindCoordinatorResponse(node_id=7, host="elsewhere", port=1)
    scripted = broker.faults.answer("FindCoordinator", elsewhere)
    with closing(connection):
        first, second = (connection.call(FindCoordinatorRequest(key="g"), at_most=3) for _ in range(2))
    assert (first.node_id, first.host, first.port) == (7, "elsewhere", 1)
    assert second.host == "127.0.0.1"
    assert scripted.struck == 1


def test_a_function_answers_what_it_wants_to(broker: Broker, connection: BrokerConnection) -> None:
    def answer(request: FindCoordinatorRequest) -> FindCoordinatorResponse | None:
        if request.key != "mine":
            return None
        return FindCoordinatorResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)

    broker.faults.answer("FindCoordinator", answer, times=None)
    with closing(connection):
        answers = {
            key: connection.call(FindCoordinatorRequest(key=key), at_most=3).error_code for key in ("mine", "yours")
        }
    assert answers == {"mine": ErrorCode.COORDINATOR_NOT_AVAILABLE, "yours": ErrorCode.NONE}


def test_only_the_last_are_kept(broker: Broker, connection: BrokerConnection, monkeypatch: pytest.MonkeyPatch) -> None:
    from ottla.testing import requests

    monkeypatch.setattr(requests, "_KEPT", 3)
    with Broker() as small, closing(BrokerConnection("127.0.0.1", small.port, 30)) as other:
        for number in range(5):
            heartbeat(other, f"g{number}")
        assert [each.fields["group_id"] for each in small.requests] == ["g2", "g3", "g4"]
    connection.close()


def test_another_process_notes_nothing() -> None:
    broker = Broker(process=True)
    for look in ("requests", "faults", "clock"):
        with pytest.raises(BrokerError):
            getattr(broker, look)
    for do in (broker.compact, broker.apply_retention):
        with pytest.raises(BrokerError, match="in its own time"):
            do()
    broker.close()
