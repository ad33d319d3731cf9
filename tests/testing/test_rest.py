"""The REST proxy that tests get."""

from __future__ import annotations

import json
from typing import Any
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

from ottla.testing import Broker

OPENER = build_opener(ProxyHandler({}))


def ask(url: str, body: object, form: str = "json") -> tuple[int, Any]:
    kind = f"application/vnd.kafka.{form}.v2+json" if form else "application/vnd.kafka.v2+json"
    request = Request(url, json.dumps(body).encode(), headers={"Content-Type": kind, "Accept": "*/*"})
    try:
        with OPENER.open(request, timeout=30) as response:
            data = response.read()
            return response.status, json.loads(data) if data else None
    except HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_it_starts_when_it_is_asked_for() -> None:
    with Broker() as broker:
        body = {"value_schema": '"long"', "records": [{"value": 7}]}
        status, answer = ask(f"{broker.rest_url}/topics/orders", body, "avro")
        assert status == 200, answer
        assert broker.schemas.schema(answer["value_schema_id"]) == '"long"'
        (record,) = broker.records("orders")
        assert record.value == b"\x00" + answer["value_schema_id"].to_bytes(4, "big") + b"\x0e"
        bad = {"value_schema": "nonsense", "records": [{"value": 7}]}
        assert ask(f"{broker.rest_url}/topics/orders", bad, "avro")[1]["error_code"] == 42205
        unknown = {"value_schema_id": 99, "records": [{"value": 7}]}
        assert ask(f"{broker.rest_url}/topics/orders", unknown, "avro")[1]["error_code"] == 40403


def test_a_reset_ends_its_consumers() -> None:
    with Broker() as broker:
        url = f"{broker.rest_url}/consumers/g"
        for _ in range(2):
            assert ask(url, {"name": "mine"}, "")[0] == 200
            assert ask(url, {"name": "mine"}, "")[0] == 409
            broker.create_topic("orders")
            assert ask(f"{url}/instances/mine/subscription", {"topics": ["orders"]}, "")[0] == 204
            broker.wait_for_group("g", members=1)
            broker.reset()
            assert broker.groups() == {}


def test_it_works_with_users() -> None:
    with Broker(users={"ann": "secret"}) as broker:
        assert ask(f"{broker.rest_url}/topics/orders", {"records": [{"value": 1}]})[0] == 200
