"""What the REST proxy says of topics, partitions and brokers."""

from __future__ import annotations

from ottla.testing.broker import Broker
from tests.rest.conftest import V2, Rest


def test_topics_are_listed_and_described(broker: Broker, rest: Rest) -> None:
    broker.create_topic("orders", partitions=2, configs={"retention.ms": 1000})
    broker.produce("orders", "a", "b", partition=1)
    status, names = rest.get("/topics")
    assert (status, [name for name in names if not name.startswith("_")]) == (200, ["orders"])
    status, topic = rest.get("/topics/orders")
    assert (status, topic["name"], topic["configs"]["retention.ms"]) == (200, "orders", "1000")
    partition = {"partition": 1, "leader": 1, "replicas": [{"broker": 1, "leader": True, "in_sync": True}]}
    assert topic["partitions"] == [{**partition, "partition": 0}, partition]
    assert rest.get("/topics/orders/partitions") == (200, topic["partitions"])
    assert rest.get("/topics/orders/partitions/1") == (200, partition)
    assert rest.get("/topics/orders/partitions/1/offsets") == (200, {"beginning_offset": 0, "end_offset": 2})
    assert rest.get("/brokers") == (200, {"brokers": [1]})


def test_what_is_not_there_has_confluents_code(broker: Broker, rest: Rest) -> None:
    broker.create_topic("orders")
    no_topic = {"error_code": 40401, "message": "Topic not found."}
    no_partition = {"error_code": 40402, "message": "Partition not found."}
    nothing = {"error_code": 404, "message": "HTTP 404 Not Found"}
    assert rest.get("/topics/none") == (404, no_topic)
    assert rest.get("/topics/not%20allowed") == (404, no_topic)
    assert rest.get("/topics/none/partitions") == (404, no_topic)
    assert rest.get("/topics/orders/partitions/1") == (404, no_partition)
    assert rest.get("/topics/orders/partitions/-1") == (404, nothing)
    assert rest.get("/topics/orders/partitions/99999999999") == (404, nothing)
    assert rest.get("/nothing") == (404, nothing)
    assert rest.answer(rest.client.delete("/topics/orders"))[0] == 405


def test_the_type_of_the_answer_is_one_that_the_client_accepts(broker: Broker, rest: Rest) -> None:
    for accepted, got in (
        ("*/*", V2),
        (V2, V2),
        ("application/json", "application/json"),
        ("text/html, application/json;q=0.5", "application/json"),
    ):
        answer = rest.client.get("/topics", headers={"accept": accepted})
        assert answer.headers["content-type"] == got
    assert rest.get("/topics", headers={"accept": "text/html"})[0] == 406


def test_version_3_describes_the_cluster(broker: Broker, rest: Rest) -> None:
    broker.create_topic("orders", partitions=3)
    status, found = rest.get("/v3/clusters")
    assert (status, found["kind"]) == (200, "KafkaClusterList")
    (cluster,) = found["data"]
    path = f"/v3/clusters/{cluster['cluster_id']}"
    assert cluster["metadata"] == {
        "self": f"{rest.url}{path}",
        "resource_name": f"crn:///kafka={cluster['cluster_id']}",
    }
    assert rest.get(path) == (200, cluster)
    (topic,) = (
        it for it in rest.get(f"{path}/topics")[1]["data"] if not it["is_internal"] and it["topic_name"] != "_schemas"
    )
    assert rest.get(f"{path}/topics/orders") == (200, topic)
    assert (topic["topic_name"], topic["partitions_count"], topic["replication_factor"]) == ("orders", 3, 1)
    partitions = rest.get(topic["partitions"]["related"])[1]["data"]
    assert [it["partition_id"] for it in partitions] == [0, 1, 2]
    assert rest.get(partitions[2]["metadata"]["self"]) == (200, partitions[2])
    (broker_found,) = rest.get(cluster["brokers"]["related"])[1]["data"]
    assert rest.get(cluster["controller"]["related"]) == (200, broker_found)
    assert (broker_found["broker_id"], broker_found["port"]) == (1, broker.port)


def test_version_3_says_what_is_not_there(broker: Broker, rest: Rest) -> None:
    broker.create_topic("orders")
    cluster = rest.get("/v3/clusters")[1]["data"][0]["cluster_id"]
    for path in (
        "/v3/clusters/other",
        "/v3/clusters/other/topics",
        f"/v3/clusters/{cluster}/brokers/9",
        f"/v3/clusters/{cluster}/topics/orders/partitions/1",
    ):
        assert rest.get(path) == (404, {"error_code": 404, "message": "HTTP 404 Not Found"})
    assert rest.get(f"/v3/clusters/{cluster}/topics/none")[0] == 404


def test_another_site_is_not_answered(broker: Broker, rest: Rest) -> None:
    assert rest.get("/topics", headers={"host": "evil.example"})[0] == 421
