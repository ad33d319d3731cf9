"""What an order is, and when it is one. No Kafka here."""

from __future__ import annotations

import json
from dataclasses import dataclass


class InvalidOrderError(ValueError):
    """The order cannot be accepted; the text is for the customer."""


@dataclass(frozen=True)
class Order:
    """An order of some pieces of one article. `total_cents` is what it costs altogether."""

    order_id: str
    customer: str
    quantity: int
    price_cents: int

    @property
    def total_cents(self) -> int:
        return self.quantity * self.price_cents


def parse_order(data: bytes | None) -> Order:
    """Read an order. Raises InvalidOrderError."""
    try:
        order = Order(**json.loads(data or b""))
    except (ValueError, TypeError):
        raise InvalidOrderError("this is not an order") from None
    if not isinstance(order.quantity, int) or order.quantity < 1:
        raise InvalidOrderError("the quantity must be at least 1")
    return order
