"""The examples in examples/spark, run for two nights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from compat_tests.brokers.process import BrokerProcess
from compat_tests.clients.base import Record
from compat_tests.clients.confluent import Confluent
from examples.spark.readers import READERS
from examples.spark.shop import Shop, newest_table


def send(client: Confluent, topic: str, *values: dict[str, Any]) -> None:
    producer = client.producer()
    producer.send(topic, [Record(json.dumps(value).encode()) for value in values])
    producer.close()


def order(number: int, at: str, total: float = 10.0) -> dict[str, Any]:
    return {"id": number, "item": f"item-{number % 2}", "total": total, "at": f"2026-01-01 {at}"}


def payment(number: int, at: str) -> dict[str, Any]:
    return {"order_id": number, "method": "card", "at": f"2026-01-01 {at}"}


@pytest.mark.slow
def test_two_nights(spark: SparkSession, own_broker: BrokerProcess, tmp_path: Path) -> None:
    client = Confluent(own_broker.bootstrap)
    for topic in ("orders", "payments", "prices", "revenue"):
        client.create_topic(topic)
    shop = Shop(spark, own_broker.bootstrap, tmp_path)
    send(client, "orders", order(1, "10:01:00"), order(2, "10:05:00", 5.0), order(3, "10:31:00"))
    send(client, "payments", payment(1, "10:20:00"))
    send(client, "prices", {"item": "tea", "price": 3.0}, {"item": "milk", "price": 1.0})
    shop.nightly()

    send(client, "orders", order(4, "12:00:00"), order(5, "12:30:00"), order(1, "08:00:00"))
    send(client, "payments", payment(3, "11:15:00"), payment(2, "12:20:00"))
    send(client, "prices", {"item": "tea", "price": 3.5})
    shop.nightly()
    shop.nightly()

    paid = {name: sorted(row["id"] for row in read(tmp_path / "paid")) for name, read in READERS.items()}
    assert paid == {name: [1, 3] for name in READERS}
    revenue = (
        spark.read.format("ottla")
        .option("kafka.bootstrap.servers", own_broker.bootstrap)
        .option("subscribe", "revenue")
        .option("kafka.isolation.level", "read_committed")
        .load()
    )
    windows = [json.loads(row.value) for row in revenue.collect()]
    assert sorted((window["start"][11:16], window["total"], window["orders"]) for window in windows) == [
        ("10:00", 15.0, 2),
        ("10:30", 10.0, 1),
        ("12:00", 10.0, 1),
    ]
    newest = newest_table(tmp_path / "newest")
    assert newest is not None
    for read in READERS.values():
        assert {row["item"]: row["price"] for row in read(newest)} == {"tea": 3.5, "milk": 1.0}
