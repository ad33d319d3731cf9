"""What becomes of a registry's part in the election when its node stops."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from urllib.request import ProxyHandler, Request, build_opener

import pytest

from ottla.client.client import Client
from ottla.kproto.messages.groups.describe_groups import DescribeGroupsRequest
from ottla.registry.writer.election import GROUP
from ottla.testing.broker import Broker

CONFIG = {"ottla.registry.listeners": "127.0.0.1:0"}


def test_a_registry_leaves_the_election_before_its_node_stops(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Else its group would wait for its session to end, and the log would tell of a connection that was lost."""
    with Broker(data_dir=tmp_path, config=CONFIG) as broker:
        assert broker._thread is not None
        url = broker._thread.ready.registry_url
        body = json.dumps({"schema": '"string"'}).encode()
        request = Request(f"{url}/subjects/s/versions", body, {"Content-Type": "application/json"})
        with build_opener(ProxyHandler({})).open(request, timeout=60) as response:
            assert json.load(response)["id"] == 1
    with Broker(data_dir=tmp_path) as broker, Client([("127.0.0.1", broker.port)]) as client:
        (group,) = client.call(DescribeGroupsRequest(groups=[GROUP])).groups
    assert (group.group_state, group.members) == ("Empty", [])
    assert [
        it.message for it in caplog.records if it.name.startswith("ottla.registry") and it.levelno > logging.INFO
    ] == []
