"""The order service: each order of the topic `orders` is charged, and confirmed or rejected, exactly once.

What it emits and how far it has read are one transaction: either both are there or neither. The payment lies outside,
so it is made idempotent: the provider is given the order's id, and does not charge the same id twice.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from examples.orders.orders import InvalidOrderError, Order, parse_order

Charge = Callable[[Order], None]
"""Charges an order; raises InvalidOrderError if the customer cannot pay. The same order again must change nothing."""

ORDERS, CONFIRMED, REJECTED = "orders", "orders.confirmed", "orders.rejected"


class OrderService:
    """One instance of the service. Those of one `name` share the partitions; each has an `instance` of its own."""

    def __init__(self, bootstrap: str, charge: Charge, *, name: str = "order-service", instance: str = "0") -> None:
        self._charge = charge
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": name,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )
        self._producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"{name}-{instance}"})
        self._producer.init_transactions(30)
        self._consumer.subscribe([ORDERS])

    def process(self, timeout_s: float = 1.0) -> int:
        """Handle the orders that are there, at most 100; returns how many. A broken transaction is begun anew later."""
        messages = self._consumer.consume(100, timeout_s)
        orders = [message for message in messages if message.error() is None]
        if not orders:
            return 0
        self._producer.begin_transaction()
        try:
            for message in orders:
                self._handle(message)
            self._producer.send_offsets_to_transaction(
                self._consumer.position(self._consumer.assignment()), self._consumer.consumer_group_metadata(), 30
            )
            self._producer.commit_transaction(30)
        except KafkaException as failure:
            if not failure.args[0].txn_requires_abort():
                raise
            self._producer.abort_transaction(30)
            self._rewind(orders)
            return 0
        return len(orders)

    def close(self) -> None:
        self._consumer.close()

    def _handle(self, message: Message) -> None:
        try:
            order = parse_order(message.value())
            self._charge(order)
        except InvalidOrderError as error:
            self._emit(REJECTED, message, {"reason": str(error)})
        else:
            self._emit(CONFIRMED, message, {"order_id": order.order_id, "charged_cents": order.total_cents})

    def _emit(self, topic: str, cause: Message, event: dict[str, Any]) -> None:
        self._producer.produce(topic, json.dumps(event), key=cause.key())

    def _rewind(self, orders: list[Message]) -> None:
        """Read again what was not committed."""
        first: dict[tuple[Any, Any], Any] = {}
        for message in orders:
            first.setdefault((message.topic(), message.partition()), message.offset())
        for (topic, partition), offset in first.items():
            self._consumer.seek(TopicPartition(topic, partition, offset))
