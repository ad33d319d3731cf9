"""The administrative APIs, request by request: Ottla answers what Apache Kafka answers, code and words.

Both brokers get the same requests in the same order. Ids, ports, folders and offsets are not compared, nor is the
order of lists that Kafka takes from hash maps. What differs on purpose is in docs/compatibility.md.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID

import pytest

from compat_tests import java
from compat_tests.brokers.apache_kafka import ApacheKafka
from compat_tests.brokers.ottla_broker import OttlaBroker
from compat_tests.wire.wire import Wire
from ottla.kproto.messages.access import create_acls as ca
from ottla.kproto.messages.access import create_delegation_token as cdt
from ottla.kproto.messages.access import delete_acls as dea
from ottla.kproto.messages.access import describe_acls as da
from ottla.kproto.messages.access import describe_delegation_token as ddt
from ottla.kproto.messages.access import expire_delegation_token as edt
from ottla.kproto.messages.access import renew_delegation_token as rdt
from ottla.kproto.messages.cluster import add_raft_voter as arv
from ottla.kproto.messages.cluster import describe_cluster as dc
from ottla.kproto.messages.cluster import unregister_broker as ub
from ottla.kproto.messages.cluster import update_features as uf
from ottla.kproto.messages.configs import alter_client_quotas as acq
from ottla.kproto.messages.configs import describe_client_quotas as dcq
from ottla.kproto.messages.configs import describe_configs as dcf
from ottla.kproto.messages.configs import incremental_alter_configs as iac
from ottla.kproto.messages.configs import list_config_resources as lcr
from ottla.kproto.messages.data import alter_replica_log_dirs as ard
from ottla.kproto.messages.data import delete_records as dr
from ottla.kproto.messages.data import describe_log_dirs as dld
from ottla.kproto.messages.topics import alter_partition_reassignments as apr
from ottla.kproto.messages.topics import create_partitions as cp
from ottla.kproto.messages.topics import create_topics as ct
from ottla.kproto.messages.topics import delete_topics as dt
from ottla.kproto.messages.topics import describe_topic_partitions as dtp
from ottla.kproto.messages.topics import elect_leaders as el
from ottla.kproto.messages.topics import list_partition_reassignments as lpr
from ottla.kproto.messages.topics import metadata as md
from ottla.kproto.schema import Request, Struct

pytestmark = pytest.mark.java

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
TIMEOUT_MS = 20_000
READS = ("DESCRIBE", "LIST", "METADATA")

NOT_COMPARED = frozenset(
    {
        "cluster_id",
        "documentation",
        "log_dir",
        "port",
        "topic_id",
        "total_bytes",
        "usable_bytes",
    }
)

# Kafka's feature eligible.leader.replicas.version, which Ottla does not have, sets these for the whole cluster.
#: Listeners come and go while a broker of Kafka's runs, and not while one of Ottla's does.
FIXED = ("listeners", "listener.security.protocol.map")

SET_BY_ELR = "min.insync.replicas"


class Both:
    """Apache Kafka and Ottla, each asked the same."""

    def __init__(self, kafka: Wire, ottla: Wire) -> None:
        self._clients = (kafka, ottla)

    def call(self, request: Request, version: int) -> tuple[Any, Any]:
        kafka, ottla = (comparable(client.call(request, version)) for client in self._clients)
        return kafka, ottla


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    """Both brokers with topic `t` of two partitions, topic `deleted.soon` and some records' worth of nothing."""
    if reason := java.missing():
        pytest.skip(reason)
    oracle = ApacheKafka(tmp_path_factory.mktemp("kafka"), jvm_options=java.QUICK)
    with oracle as kafka, OttlaBroker(tmp_path_factory.mktemp("ottla")) as ottla:
        clients = (Wire(kafka.bootstrap), Wire(ottla.bootstrap))
        both = Both(*clients)
        for created in both.call(create(topic("t", 2), topic("deleted.soon"), topic("empty")), 7):
            assert [it["error_code"] for it in created["topics"]] == [0, 0, 0]
        yield both
        for client in clients:
            client.close()


def comparable(value: Any) -> Any:
    """A message as plain values, without what may differ and with lists in one order."""
    if isinstance(value, Struct):
        return {
            field.name: comparable(getattr(value, field.name))
            for field in value.FIELDS
            if field.name not in NOT_COMPARED
        }
    if isinstance(value, list):
        return sorted(map(comparable, value), key=lambda it: json.dumps(it, default=str, sort_keys=True))
    return value


def topic(name: str, partitions: int = 1, replicas: int = 1, **options: Any) -> ct.CreatableTopic:
    return ct.CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas, **options)


def create(*topics: ct.CreatableTopic, **options: Any) -> ct.CreateTopicsRequest:
    return ct.CreateTopicsRequest(topics=list(topics), timeout_ms=TIMEOUT_MS, **options)


def assigned(name: str, *replicas: list[int], first: int = 0) -> ct.CreatableTopic:
    assignments = [
        ct.CreatableReplicaAssignment(partition_index=number, broker_ids=brokers)
        for number, brokers in enumerate(replicas, start=first)
    ]
    return topic(name, -1, -1, assignments=assignments)


def twice_assigned(name: str, **options: Any) -> ct.CreatableTopic:
    assignment = ct.CreatableReplicaAssignment(partition_index=0, broker_ids=[1])
    counts = {"num_partitions": -1, "replication_factor": -1} | options
    return ct.CreatableTopic(name=name, assignments=[assignment] * 2, **counts)


def configured(name: str, **configs: str | None) -> ct.CreatableTopic:
    pairs = [ct.CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    return topic(name, configs=pairs)


def grow(name: str, count: int, *replicas: list[int]) -> cp.CreatePartitionsRequest:
    assignments = [cp.CreatePartitionsAssignment(broker_ids=brokers) for brokers in replicas] or None
    grown = cp.CreatePartitionsTopic(name=name, count=count, assignments=assignments)
    return cp.CreatePartitionsRequest(topics=[grown], timeout_ms=TIMEOUT_MS)


def delete(*topics: dt.DeleteTopicState) -> dt.DeleteTopicsRequest:
    return dt.DeleteTopicsRequest(topics=list(topics), timeout_ms=TIMEOUT_MS)


def change(type_: int, name: str, *changes: tuple[str, int, str | None]) -> iac.IncrementalAlterConfigsRequest:
    configs = [
        iac.AlterableConfig(name=key, config_operation=operation, value=value) for key, operation, value in changes
    ]
    resource = iac.AlterConfigsResource(resource_type=type_, resource_name=name, configs=configs)
    return iac.IncrementalAlterConfigsRequest(resources=[resource])


def describe(type_: int, name: str, *keys: str) -> dcf.DescribeConfigsRequest:
    resource = dcf.DescribeConfigsResource(
        resource_type=type_, resource_name=name, configuration_keys=list(keys) or None
    )
    return dcf.DescribeConfigsRequest(resources=[resource], include_synonyms=True)


def set_quota(entity: Sequence[tuple[str, str | None]], **quotas: float | None) -> acq.AlterClientQuotasRequest:
    entry = acq.EntryData(
        entity=[acq.EntityData(entity_type=type_, entity_name=name) for type_, name in entity],
        ops=[acq.OpData(key=key, value=value or 0.0, remove=value is None) for key, value in quotas.items()],
    )
    return acq.AlterClientQuotasRequest(entries=[entry])


def find_quotas(*parts: tuple[str, int, str | None], strict: bool = False) -> dcq.DescribeClientQuotasRequest:
    components = [dcq.ComponentData(entity_type=type_, match_type=match, match=name) for type_, match, name in parts]
    return dcq.DescribeClientQuotasRequest(components=components, strict=strict)


def feature(name: str, level: int, upgrade_type: int = 1) -> uf.UpdateFeaturesRequest:
    update = uf.FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=upgrade_type)
    return uf.UpdateFeaturesRequest(feature_updates=[update])


def names(*topics: str, **options: Any) -> md.MetadataRequest:
    return md.MetadataRequest(topics=[md.MetadataRequestTopic(name=name) for name in topics], **options)


def pages(*topics: str, **options: Any) -> dtp.DescribeTopicPartitionsRequest:
    asked = [dtp.TopicRequest(name=name) for name in topics]
    return dtp.DescribeTopicPartitionsRequest(topics=asked, **options)


def low_watermark(name: str, *offsets: int) -> dr.DeleteRecordsRequest:
    partitions = [
        dr.DeleteRecordsPartition(partition_index=number, offset=offset) for number, offset in enumerate(offsets)
    ]
    return dr.DeleteRecordsRequest(
        topics=[dr.DeleteRecordsTopic(name=name, partitions=partitions)], timeout_ms=TIMEOUT_MS
    )


def reassign(name: str, partition: int, replicas: list[int] | None) -> apr.AlterPartitionReassignmentsRequest:
    moved = apr.ReassignablePartition(partition_index=partition, replicas=replicas)
    return apr.AlterPartitionReassignmentsRequest(topics=[apr.ReassignableTopic(name=name, partitions=[moved])])


UNKNOWN_ID = UUID(int=99)
ANN = [("user", "ann")]

CASES: dict[str, tuple[Request, int]] = {
    "a topic that exists": (create(topic("t")), 7),
    "a topic that exists, older": (create(topic("t")), 4),
    "a colliding name": (create(topic("deleted_soon")), 7),
    "a bad name": (create(topic("bad name")), 7),
    "an empty name": (create(topic("")), 7),
    "a dot": (create(topic(".")), 7),
    "no partitions": (create(topic("x", 0)), 7),
    "fewer than no partitions": (create(topic("x", -2)), 7),
    "no replicas": (create(topic("x", 1, 0)), 7),
    "too many replicas": (create(topic("x", 1, 9)), 7),
    "too many partitions": (create(topic("x", 20_000)), 7),
    "an assignment with a count": (create(topic("x", 2, assignments=assigned("x", [1]).assignments)), 7),
    "an assignment to nobody": (create(assigned("x", [7])), 7),
    "an assignment twice to one": (create(assigned("x", [1, 1])), 7),
    "an empty assignment": (create(assigned("x", [])), 7),
    "an assignment with a gap": (create(assigned("x", [1], first=3)), 7),
    "a wrong config": (create(configured("x", retention_ms="x")), 7),
    "an unknown config": (create(configured("x", foo="x")), 7),
    "a null config": (create(configured("x", retention_ms=None)), 7),
    "contradicting configs": (create(configured("x", min_compaction_lag_ms="9", max_compaction_lag_ms="8")), 7),
    "tiered storage": (create(configured("x", remote_storage_enable="true")), 7),
    "a name twice": (create(topic("x"), topic("x")), 7),
    "a partition assigned twice": (create(twice_assigned("x")), 7),
    "a partition assigned twice, of a topic that exists": (create(twice_assigned("t")), 7),
    "a partition assigned twice, with a bad name": (create(twice_assigned("bad name")), 7),
    "a partition assigned twice, with a count": (create(twice_assigned("x", num_partitions=1)), 7),
    "Kafka's own log": (create(topic("__cluster_metadata")), 7),
    "as many partitions as there are": (grow("t", 2), 3),
    "fewer partitions": (grow("t", 1), 3),
    "negative partitions": (grow("t", -3), 3),
    "more partitions with too few assignments": (grow("t", 4, [1]), 3),
    "more partitions with a wrong assignment": (grow("t", 3, [5]), 3),
    "more partitions": (grow("t", 3), 3),
    "delete by an unknown name": (delete(dt.DeleteTopicState(name="absent")), 6),
    "delete by an unknown id": (delete(dt.DeleteTopicState(name=None, topic_id=UNKNOWN_ID)), 6),
    "delete by name and id": (delete(dt.DeleteTopicState(name="t", topic_id=UNKNOWN_ID)), 6),
    "delete by nothing": (delete(dt.DeleteTopicState(name=None)), 6),
    "delete twice": (delete(dt.DeleteTopicState(name="x"), dt.DeleteTopicState(name="x")), 6),
    "delete by name, and by name and id": (
        delete(dt.DeleteTopicState(name="absent"), dt.DeleteTopicState(name="absent", topic_id=UNKNOWN_ID)),
        6,
    ),
    "delete": (delete(dt.DeleteTopicState(name="deleted.soon")), 6),
    "append to a list": (change(TOPIC, "t", ("cleanup.policy", APPEND, "compact")), 1),
    "what was appended": (describe(TOPIC, "t", "cleanup.policy"), 4),
    "subtract from a list": (change(TOPIC, "t", ("cleanup.policy", SUBTRACT, "delete")), 1),
    "what was left": (describe(TOPIC, "t", "cleanup.policy"), 4),
    "append to a number": (change(TOPIC, "t", ("retention.ms", APPEND, "1")), 1),
    "set nothing": (change(TOPIC, "t", ("retention.ms", SET, None)), 1),
    "set twice": (change(TOPIC, "t", ("retention.ms", SET, "1"), ("retention.ms", DELETE, None)), 1),
    "set a wrong value": (change(TOPIC, "t", ("retention.ms", SET, "x")), 1),
    "set an unknown config": (change(TOPIC, "t", ("foo", SET, "x")), 1),
    "set on an absent topic": (change(TOPIC, "absent", ("retention.ms", SET, "1")), 1),
    "set on no topic": (change(TOPIC, "", ("retention.ms", SET, "1")), 1),
    "set on nothing known": (change(99, "t", ("retention.ms", SET, "1")), 1),
    "set what is read-only": (change(BROKER, "1", ("num.partitions", SET, "3")), 1),
    "set on a bad topic name": (change(TOPIC, "bad name", ("retention.ms", SET, "1")), 1),
    "set an unknown config of an absent topic": (change(TOPIC, "absent", ("foo", SET, "x")), 1),
    "unset on a bad topic name": (change(TOPIC, ".", ("retention.ms", DELETE, None)), 1),
    "set for all what is of one": (change(BROKER, "", ("ssl.client.auth", SET, "none")), 1),
    "set security of no listener": (change(BROKER, "1", ("ssl.truststore.type", SET, "PKCS12")), 1),
    "set security of no listener for all": (change(BROKER, "", ("ssl.keystore.key", SET, "x")), 1),
    "set a limit that lets nobody in": (change(BROKER, "1", ("max.connections", SET, "0")), 1),
    "set a rate that lets nobody in": (change(BROKER, "", ("max.connection.creation.rate", SET, "0")), 1),
    "set a limit of addresses that lets nobody in": (change(BROKER, "1", ("max.connections.per.ip", SET, "0")), 1),
    "double a number of threads twice": (change(BROKER, "1", ("num.io.threads", SET, "32")), 1),
    "set too many fetchers": (change(BROKER, "1", ("num.replica.fetchers", SET, "9")), 1),
    "set no retention": (change(BROKER, "1", ("log.retention.ms", SET, "0")), 1),
    "set on another broker": (change(BROKER, "2", ("log.retention.ms", SET, "3")), 1),
    "set on no broker": (change(BROKER, "x", ("log.retention.ms", SET, "3")), 1),
    "set a broker's config wrongly": (change(BROKER, "1", ("log.retention.ms", SET, "x")), 1),
    "set a broker's config": (change(BROKER, "1", ("log.retention.ms", SET, "600000")), 1),
    "set it for all": (change(BROKER, "", ("log.retention.ms", SET, "700000")), 1),
    "what the broker has": (describe(BROKER, "1", "log.retention.ms", "log.retention.hours"), 4),
    "what all brokers have": (describe(BROKER, "", "log.retention.ms"), 4),
    "what shows through to the topic": (describe(TOPIC, "t", "retention.ms"), 4),
    "delete a broker's config": (change(BROKER, "1", ("log.retention.ms", DELETE, None)), 1),
    "delete it for all": (change(BROKER, "", ("log.retention.ms", DELETE, None)), 1),
    "a group's timeout too short": (change(GROUP, "g", ("consumer.session.timeout.ms", SET, "1")), 1),
    "a group's heartbeat too long": (change(GROUP, "g", ("consumer.heartbeat.interval.ms", SET, "99999")), 1),
    "a share group's timeout too short": (change(GROUP, "g", ("share.session.timeout.ms", SET, "5")), 1),
    "too many standby replicas": (change(GROUP, "g", ("streams.num.standby.replicas", SET, "5")), 1),
    "an unknown group config": (change(GROUP, "g", ("foo", SET, "5")), 1),
    "no group": (change(GROUP, "", ("consumer.session.timeout.ms", SET, "50000")), 1),
    "a group's timeout": (change(GROUP, "g", ("consumer.session.timeout.ms", SET, "50000")), 1),
    "what the group has": (describe(GROUP, "g"), 4),
    "a subscription's wrong pattern": (change(CLIENT_METRICS, "m", ("match", SET, "colour=red")), 1),
    "no subscription": (change(CLIENT_METRICS, "", ("interval.ms", SET, "1000")), 1),
    "an unknown subscription config": (change(CLIENT_METRICS, "m", ("foo", SET, "1000")), 1),
    "a subscription": (change(CLIENT_METRICS, "m", ("interval.ms", SET, "1000")), 1),
    "what the subscription has": (describe(CLIENT_METRICS, "m"), 4),
    "an unknown logger": (change(LOGGER, "1", ("no.such.logger", SET, "INFO")), 1),
    "an unknown level": (change(LOGGER, "1", ("root", SET, "LOUD")), 1),
    "append to a level": (change(LOGGER, "1", ("root", APPEND, "INFO")), 1),
    "loggers of no broker": (change(LOGGER, "", ("root", SET, "INFO")), 1),
    "describe an absent topic": (describe(TOPIC, "absent"), 4),
    "describe a bad topic name": (describe(TOPIC, "bad name"), 4),
    "describe another broker": (describe(BROKER, "2"), 4),
    "describe no broker": (describe(BROKER, "x"), 4),
    "describe another broker's loggers": (describe(LOGGER, "2"), 4),
    "describe nobody's loggers": (describe(LOGGER, ""), 4),
    "describe no group": (describe(GROUP, ""), 4),
    "describe no subscription": (describe(CLIENT_METRICS, ""), 4),
    "list config resources": (lcr.ListConfigResourcesRequest(resource_types=[]), 1),
    "list subscriptions": (lcr.ListConfigResourcesRequest(), 0),
    "list unknown resources": (lcr.ListConfigResourcesRequest(resource_types=[77]), 1),
    "the cluster": (dc.DescribeClusterRequest(include_cluster_authorized_operations=True), 2),
    "the controllers": (dc.DescribeClusterRequest(endpoint_type=2), 2),
    "no known endpoints": (dc.DescribeClusterRequest(endpoint_type=3), 2),
    "an unknown feature": (feature("nope", 1), 2),
    "an unknown feature, older": (feature("nope", 1), 1),
    "a feature down without being told": (feature("transaction.version", 1), 2),
    "a feature beyond its levels": (feature("transaction.version", 9), 2),
    "a feature below zero": (feature("transaction.version", -1), 2),
    "a feature's wrong upgrade type": (feature("transaction.version", 1, 7), 2),
    "a feature down": (feature("transaction.version", 1, 2), 2),
    "a feature down to a newer level": (feature("transaction.version", 2, 2), 2),
    "a feature up again": (feature("transaction.version", 2), 2),
    "the metadata version down": (feature("metadata.version", 20, 2), 2),
    "remove a quota that there is not": (set_quota([("user", "nobody")], nonsense=None), 1),
    "remove another type's quota": (set_quota([("user", "nobody")], connection_creation_rate=None), 1),
    "a quota that is too large": (set_quota([("user", "nobody")], producer_byte_rate=1e300), 1),
    "connections that are too many": (set_quota([("ip", "1.2.3.4")], connection_creation_rate=2.0**31), 1),
    "a quota that is nearly whole": (set_quota([("user", "nobody")], producer_byte_rate=7 + 1e-9), 1),
    "a fraction below 0": (set_quota([("user", "nobody")], producer_byte_rate=-1.5), 1),
    "quotas of no type": (find_quotas(("", 0, "x")), 1),
    "quotas of an unknown type that match oddly": (find_quotas(("nonsense", 9, "x")), 1),
    "quotas of a type twice, oddly": (find_quotas(("user", 0, "x"), ("user", 9, "x")), 1),
    "a quota": (set_quota(ANN, producer_byte_rate=1000.0), 1),
    "an unknown quota": (set_quota(ANN, foo=1000.0), 1),
    "a quota of nothing": (set_quota(ANN, producer_byte_rate=0.0), 1),
    "a quota of half a byte": (set_quota(ANN, producer_byte_rate=1.5), 1),
    "a quota of an unknown entity": (set_quota([("tribe", "x")], producer_byte_rate=1.0), 1),
    "a quota of nobody": (set_quota([], producer_byte_rate=1.0), 1),
    "a quota of an empty name": (set_quota([("user", "")], producer_byte_rate=1.0), 1),
    "a quota of no address": (set_quota([("ip", "x y")], connection_creation_rate=1.0), 1),
    "a default quota": (set_quota([("user", None)], request_percentage=5.5), 1),
    "a quota of two": (set_quota([("client-id", "c"), ("user", "ann")], controller_mutation_rate=5.5), 1),
    "all quotas": (find_quotas(), 1),
    "quotas of a user": (find_quotas(("user", 0, "ann")), 1),
    "quotas of a user and nothing else": (find_quotas(("user", 0, "ann"), strict=True), 1),
    "quotas of the default user": (find_quotas(("user", 1, None)), 1),
    "quotas of any user": (find_quotas(("user", 2, None)), 1),
    "quotas of no exact user": (find_quotas(("user", 0, None)), 1),
    "quotas of a named default": (find_quotas(("user", 1, "x")), 1),
    "quotas by an unknown match": (find_quotas(("user", 9, None)), 1),
    "quotas of an unknown entity": (find_quotas(("tribe", 2, None)), 1),
    "quotas of users twice": (find_quotas(("user", 2, None), ("user", 2, None)), 1),
    "quotas of users and addresses": (find_quotas(("user", 2, None), ("ip", 2, None)), 1),
    "elect what leads": (
        el.ElectLeadersRequest(
            topic_partitions=[
                el.TopicPartitions(topic="t", partitions=[0, 9]),
                el.TopicPartitions(topic="absent", partitions=[0]),
            ]
        ),
        2,
    ),
    "create a topic in no time": (ct.CreateTopicsRequest(topics=[topic("late")], timeout_ms=0), 7),
    "create a topic in less than no time": (ct.CreateTopicsRequest(topics=[topic("late")], timeout_ms=-1), 7),
    "create no topic in no time": (ct.CreateTopicsRequest(topics=[], timeout_ms=0), 7),
    "what was created in no time": (names("late", allow_auto_topic_creation=False), 12),
    "more partitions in no time": (
        cp.CreatePartitionsRequest(topics=[cp.CreatePartitionsTopic(name="empty", count=2)], timeout_ms=0),
        3,
    ),
    "delete in no time": (dt.DeleteTopicsRequest(topics=[dt.DeleteTopicState(name="empty")], timeout_ms=0), 6),
    "reassign in no time": (
        apr.AlterPartitionReassignmentsRequest(
            topics=[
                apr.ReassignableTopic(
                    name="empty", partitions=[apr.ReassignablePartition(partition_index=0, replicas=[1])]
                )
            ],
            timeout_ms=0,
        ),
        0,
    ),
    "elect in no time": (el.ElectLeadersRequest(topic_partitions=None, timeout_ms=0), 2),
    "elect all": (el.ElectLeadersRequest(topic_partitions=None), 2),
    "elect an unknown kind": (
        el.ElectLeadersRequest(election_type=2, topic_partitions=[el.TopicPartitions(topic="t", partitions=[0, 9])]),
        2,
    ),
    "elect unknown kinds": (el.ElectLeadersRequest(election_type=7, topic_partitions=None), 2),
    "move to where it is": (reassign("t", 0, [1]), 1),
    "move to nobody": (reassign("t", 0, [7]), 1),
    "cancel no move": (reassign("t", 0, None), 1),
    "moves under way": (lpr.ListPartitionReassignmentsRequest(topics=None), 0),
    "move to another folder": (
        ard.AlterReplicaLogDirsRequest(
            dirs=[
                ard.AlterReplicaLogDir(
                    path="/nowhere", topics=[ard.AlterReplicaLogDirTopic(name="t", partitions=[0, 9])]
                )
            ]
        ),
        2,
    ),
    "move partitions to one folder and another": (
        ard.AlterReplicaLogDirsRequest(
            dirs=[
                ard.AlterReplicaLogDir(
                    path=path, topics=[ard.AlterReplicaLogDirTopic(name="t", partitions=[0, 0, -1, 9])]
                )
                for path in ("/nowhere", "/elsewhere")
            ]
        ),
        2,
    ),
    "move no partitions": (
        ard.AlterReplicaLogDirsRequest(
            dirs=[ard.AlterReplicaLogDir(path="/nowhere", topics=[ard.AlterReplicaLogDirTopic(name="t")])]
        ),
        2,
    ),
    "move partitions of long names": (
        ard.AlterReplicaLogDirsRequest(
            dirs=[
                ard.AlterReplicaLogDir(
                    path="/nowhere",
                    topics=[
                        ard.AlterReplicaLogDirTopic(name="t" * length, partitions=[0, 10, 12345])
                        for length in (1, 208, 209, 210, 212, 213, 214, 300)
                    ],
                )
            ]
        ),
        2,
    ),
    "the folders of some partitions": (
        dld.DescribeLogDirsRequest(topics=[dld.DescribableLogDirTopic(topic="empty", partitions=[0, 9])]),
        5,
    ),
    "delete records of an absent topic": (low_watermark("absent", 0), 2),
    "delete records of a compacted topic": (low_watermark("t", 0), 2),
    "delete records beyond the end": (low_watermark("empty", 7, 0), 2),
    "delete all records": (low_watermark("empty", -1), 2),
    "access control": (da.DescribeAclsRequest(resource_type_filter=1, operation=1, permission_type=1), 3),
    "more access control": (
        ca.CreateAclsRequest(
            creations=[
                ca.AclCreation(
                    resource_type=2, resource_name="t", principal="User:a", host="*", operation=3, permission_type=3
                )
            ]
        ),
        3,
    ),
    "less access control": (
        dea.DeleteAclsRequest(filters=[dea.DeleteAclsFilter(resource_type_filter=1, operation=1, permission_type=1)]),
        3,
    ),
    "a token": (cdt.CreateDelegationTokenRequest(max_lifetime_ms=-1), 3),
    "a token for another": (
        cdt.CreateDelegationTokenRequest(owner_principal_type="User", owner_principal_name="ann", max_lifetime_ms=-1),
        3,
    ),
    "a token for longer": (rdt.RenewDelegationTokenRequest(hmac=b"x", renew_period_ms=1), 2),
    "a token for no longer": (edt.ExpireDelegationTokenRequest(hmac=b"x", expiry_time_period_ms=1), 2),
    "all tokens": (ddt.DescribeDelegationTokenRequest(owners=None), 3),
    "the root logger at no level": (change(LOGGER, "1", ("root", DELETE, None)), 1),
    "a voter without an address": (
        arv.AddRaftVoterRequest(cluster_id=None, voter_id=3, voter_directory_id=UNKNOWN_ID),
        1,
    ),
    "append to a list of client metrics": (change(CLIENT_METRICS, "m", ("metrics", APPEND, "x.")), 1),
    "subtract from a list of client metrics": (change(CLIENT_METRICS, "m", ("match", SUBTRACT, "x")), 1),
    "append to a list of a group": (
        change(GROUP, "g", ("streams.rack.aware.assignment.tags", APPEND, "zone")),
        1,
    ),
    "append to a number of another broker": (change(BROKER, "99", ("log.retention.ms", APPEND, "1")), 1),
    "subtract from a number of no broker": (change(BROKER, "x", ("log.retention.ms", SUBTRACT, "1")), 1),
    "forget an unknown broker": (ub.UnregisterBrokerRequest(broker_id=77), 0),
    "metadata of a topic": (names("t", include_topic_authorized_operations=True), 12),
    "metadata of a topic twice": (names("t", "t"), 12),
    "metadata in version 8": (names("t", include_cluster_authorized_operations=True), 8),
    "metadata of a bad name": (names("bad name"), 12),
    "metadata of an empty name": (names(""), 12),
    "metadata without creation": (names("bad name", "absent", allow_auto_topic_creation=False), 12),
    "metadata of an internal topic that is absent": (
        names("__share_group_state", allow_auto_topic_creation=False),
        12,
    ),
    "metadata by an unknown id": (
        md.MetadataRequest(topics=[md.MetadataRequestTopic(topic_id=UNKNOWN_ID, name=None)]),
        12,
    ),
    "metadata by id, older": (
        md.MetadataRequest(topics=[md.MetadataRequestTopic(topic_id=UNKNOWN_ID, name="t")]),
        10,
    ),
    "metadata of everything": (md.MetadataRequest(topics=[]), 0),
    "metadata of nothing": (md.MetadataRequest(topics=[]), 1),
    "partitions of topics": (pages("t", "absent", "bad name"), 0),
    "a page of partitions": (pages("t", response_partition_limit=1), 0),
    "an empty page of partitions": (pages("t", response_partition_limit=0), 0),
    "the next page of partitions": (pages("t", cursor=dtp.Cursor(topic_name="t", partition_index=1)), 0),
    "a page before the first": (pages("t", cursor=dtp.Cursor(topic_name="t", partition_index=-1)), 0),
}


@pytest.mark.parametrize("case", CASES)
def test_both_answer_the_same(both: Both, case: str) -> None:
    request, version = CASES[case]
    kafka, ottla = both.call(request, version)
    deadline = time.monotonic() + 60
    # Kafka's brokers follow their controller a moment later.
    while kafka != ottla and request.API_KEY.name.startswith(READS) and time.monotonic() < deadline:
        time.sleep(0.1)
        kafka, ottla = both.call(request, version)
    assert ottla == kafka


def test_a_new_topic_has_the_same_configs_from_the_same_sources(both: Both) -> None:
    request = create(configured("configured", retention_ms="5"), topic("plain"), validate_only=True)
    kafka, ottla = both.call(request, 7)
    for answer in (kafka, ottla):
        for created in answer["topics"]:
            created["configs"] = [it for it in created["configs"] if _is_compared(it["name"])]
    assert ottla == kafka


def test_topics_have_the_same_settings(both: Both) -> None:
    kafka, ottla = both.call(describe(TOPIC, "empty"), 4)
    assert _compared(ottla) == _compared(kafka)


def test_brokers_have_the_same_settings(both: Both) -> None:
    """Names, types and which of them may change; the values where neither broker was given one."""
    kafka, ottla = (_by_name(answer) for answer in both.call(describe(BROKER, "1"), 4))
    assert set(ottla) == set(kafka)
    for name, setting in kafka.items():
        fields = ["config_type", "is_sensitive"] if name in FIXED else ["config_type", "read_only", "is_sensitive"]
        assert [ottla[name][field] for field in fields] == [setting[field] for field in fields], name
    defaults = {name for name in kafka if kafka[name]["config_source"] == ottla[name]["config_source"] == 5}
    assert len(defaults) > 300
    different = {name for name in defaults if ottla[name]["value"] != kafka[name]["value"]}
    assert different == {
        "log.dir",
        "log.cleaner.dedupe.buffer.size",
        "socket.receive.buffer.bytes",
        "socket.send.buffer.bytes",
    }


def _by_name(answer: Any) -> dict[str, Any]:
    (result,) = answer["results"]
    return {config["name"]: config for config in result["configs"]}


def _compared(answer: Any) -> dict[str, Any]:
    return {name: config for name, config in _by_name(answer).items() if _is_compared(name)}


def _is_compared(name: str) -> bool:
    return name != SET_BY_ELR
