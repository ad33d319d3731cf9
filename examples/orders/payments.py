"""A payment provider, as the tests have it: it remembers whom it has charged."""

from __future__ import annotations

from examples.orders.orders import InvalidOrderError, Order


class Payments:
    """Charges each order id once. Customers named in `without_money` cannot pay."""

    def __init__(self, without_money: set[str] | None = None) -> None:
        self._without_money = without_money or set()
        self.charged_cents: dict[str, int] = {}
        self.calls = 0

    def charge(self, order: Order) -> None:
        self.calls += 1
        if order.customer in self._without_money:
            raise InvalidOrderError("the card was declined")
        self.charged_cents.setdefault(order.order_id, order.total_cents)
