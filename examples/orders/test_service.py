"""The order service against a real broker, which is new for every test."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from examples.orders.payments import Payments
from examples.orders.service import CONFIRMED, ORDERS, REJECTED, OrderService
from ottla.testing import Broker

pytestmark = pytest.mark.ottla(topics={ORDERS: 2, CONFIRMED: 1, REJECTED: 1})

Start = Callable[..., OrderService]


@pytest.fixture
def payments() -> Payments:
    return Payments(without_money={"cy"})


@pytest.fixture
def start(ottla_broker: Broker, payments: Payments) -> Iterator[Start]:
    services = []

    def start(instance: str = "0") -> OrderService:
        services.append(OrderService(ottla_broker.bootstrap, payments.charge, instance=instance))
        return services[-1]

    yield start
    for service in services:
        service.close()


def run(service: OrderService, count: int) -> None:
    """Let the service handle so many orders."""
    deadline = time.monotonic() + 60
    while count > 0:
        assert time.monotonic() < deadline, f"{count} orders were not handled"
        count -= service.process(0.2)


def confirmed(broker: Broker, count: int) -> list[str]:
    """The ids of the confirmed orders. A transaction shows a moment after its commit returned: so wait for them."""
    return [record.json()["order_id"] for record in broker.wait_for(CONFIRMED, count)]


def order(number: int, customer: str = "ann") -> dict[str, object]:
    return {"order_id": str(number), "customer": customer, "quantity": 1, "price_cents": 100}


@pytest.mark.ottla(topics={ORDERS: 2, CONFIRMED: 1, REJECTED: 1}, load="orders.jsonl")
def test_orders_are_confirmed_or_rejected(ottla_broker: Broker, start: Start, payments: Payments) -> None:
    run(start(), 4)

    assert [record.json() for record in ottla_broker.wait_for(CONFIRMED)] == [{"order_id": "1", "charged_cents": 2500}]
    assert {(record.key, record.json()["reason"]) for record in ottla_broker.wait_for(REJECTED, 3)} == {
        (b"ann", "this is not an order"),
        (b"bob", "the quantity must be at least 1"),
        (b"cy", "the card was declined"),
    }
    assert payments.charged_cents == {"1": 2500}


def test_another_instance_goes_on_where_the_first_one_stopped(ottla_broker: Broker, start: Start) -> None:
    ottla_broker.produce(ORDERS, order(1), order(2), key="ann")
    first = start()
    run(first, 2)
    first.close()

    ottla_broker.produce(ORDERS, order(3), key="ann")
    run(start(instance="1"), 1)

    assert confirmed(ottla_broker, 3) == ["1", "2", "3"]


def test_a_broken_transaction_is_repeated_and_nobody_pays_twice(
    ottla_broker: Broker, start: Start, payments: Payments
) -> None:
    ottla_broker.produce(ORDERS, order(1), order(2), key="ann")
    broken = ottla_broker.faults.fail("Produce", "MESSAGE_TOO_LARGE", topic=CONFIRMED, times=1)

    run(start(), 2)

    assert broken.struck == 1
    assert payments.calls > 2
    assert payments.charged_cents == {"1": 100, "2": 100}
    assert confirmed(ottla_broker, 2) == ["1", "2"]


def test_a_lost_acknowledgement_confirms_nothing_twice(ottla_broker: Broker, start: Start) -> None:
    ottla_broker.produce(ORDERS, order(1), order(2), key="ann")
    service = start()
    lost = ottla_broker.faults.drop_connections("Produce", after_handling=True, topic=CONFIRMED)

    run(service, 2)

    assert lost.struck == 1
    assert confirmed(ottla_broker, 2) == ["1", "2"]


def test_broker_and_service_come_back_where_they_were(ottla_broker: Broker, start: Start) -> None:
    ottla_broker.produce(ORDERS, order(1), key="ann")
    service = start()
    run(service, 1)
    service.close()

    ottla_broker.restart()
    ottla_broker.produce(ORDERS, order(2), key="ann")
    run(start(), 1)

    assert confirmed(ottla_broker, 2) == ["1", "2"]
