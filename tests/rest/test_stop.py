"""What becomes of the REST proxy's consumers when their node stops."""

from __future__ import annotations

from pathlib import Path

from ottla.testing.broker import Broker
from tests.rest.conftest import CONFIG, Rest
from tests.rest.test_consumers import Consumer


def test_consumers_leave_their_groups_when_their_node_stops(tmp_path: Path) -> None:
    """Else others would wait for their sessions to end. What they were given is committed."""
    with Broker(data_dir=tmp_path, config=CONFIG) as broker:
        broker.create_topic("orders")
        broker.produce("orders", 1, 2)
        rest = Rest(broker)
        with rest.client:
            consumer = Consumer(rest, "readers")
            assert consumer.ask("POST", "/subscription", {"topics": ["orders"]})[0] == 204
            assert len(consumer.read(2)) == 2
            root = f"/v3/clusters/{rest.get('/v3/clusters')[1]['data'][0]['cluster_id']}/consumer-groups/readers"
            assert rest.get(root)[1]["state"] == "STABLE"
    with Broker(data_dir=tmp_path, config=CONFIG) as broker:
        rest = Rest(broker)
        with rest.client:
            assert rest.get(root)[1]["state"] == "EMPTY"
            assert [it["lag"] for it in rest.get(f"{root}/lags")[1]["data"]] == [0]
