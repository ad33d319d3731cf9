"""Who may do what: Ottla and Apache Kafka with StandardAuthorizer refuse the same to the same principals.

Every API is asked by each principal about topics, groups and transactional ids that exist or do not, and by principals
whose rights differ. What is compared is what each thing that was asked for is called, its error, and which operations
the answer says are allowed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any
from uuid import UUID

import pytest

from compat_tests import java
from compat_tests.brokers.apache_kafka import ApacheKafka
from compat_tests.brokers.process import HOST, BrokerProcess, Process, free_port
from compat_tests.security.test_security import SecureOttla
from compat_tests.wire.wire import Wire
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.access import (
    alter_user_scram_credentials,
    create_acls,
    delete_acls,
    describe_acls,
    describe_user_scram_credentials,
)
from ottla.kproto.messages.access.sasl_authenticate import SaslAuthenticateRequest
from ottla.kproto.messages.access.sasl_handshake import SaslHandshakeRequest
from ottla.kproto.messages.cluster import (
    add_raft_voter,
    describe_cluster,
    describe_quorum,
    remove_raft_voter,
    unregister_broker,
    unregister_controller,
    update_features,
)
from ottla.kproto.messages.configs import (
    alter_client_quotas,
    alter_configs,
    describe_client_quotas,
    describe_configs,
    incremental_alter_configs,
    list_config_resources,
)
from ottla.kproto.messages.data import (
    alter_replica_log_dirs,
    delete_records,
    describe_log_dirs,
    describe_producers,
    fetch,
    list_offsets,
    offset_for_leader_epoch,
    produce,
)
from ottla.kproto.messages.groups import (
    consumer_group_describe,
    consumer_group_heartbeat,
    delete_groups,
    describe_groups,
    find_coordinator,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    streams_group_describe,
    streams_group_heartbeat,
    sync_group,
    txn_offset_commit,
)
from ottla.kproto.messages.share import (
    alter_share_group_offsets,
    delete_share_group_offsets,
    delete_share_group_state,
    describe_share_group_offsets,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    share_acknowledge,
    share_fetch,
    share_group_describe,
    share_group_heartbeat,
    write_share_group_state,
)
from ottla.kproto.messages.topics import (
    alter_partition_reassignments,
    create_partitions,
    create_topics,
    delete_topics,
    describe_topic_partitions,
    elect_leaders,
    list_partition_reassignments,
    metadata,
)
from ottla.kproto.messages.transactions import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    describe_transactions,
    end_txn,
    init_producer_id,
    list_transactions,
    write_txn_markers,
)
from ottla.kproto.records import Record, build_batch
from ottla.kproto.schema import Request, Struct
from ottla.metadata.acls import AclOperation as Op
from ottla.metadata.acls import AclResource as On
from ottla.server.apis.table import needing_http, served

pytestmark = [pytest.mark.java, pytest.mark.kafka, pytest.mark.security]

# user: what it may do. A name that ends with * is a prefix; a minus before the operation denies it.
RIGHTS: dict[str, list[tuple[str, On, str]]] = {
    "nobody": [],
    "reader": [("READ", On.TOPIC, "open*"), ("READ", On.GROUP, "g")],
    "writer": [("WRITE", On.TOPIC, "open"), ("WRITE", On.TRANSACTIONAL_ID, "x"), ("READ", On.GROUP, "g*")],
    "viewer": [
        *(("DESCRIBE", kind, "*") for kind in (On.TOPIC, On.GROUP, On.TRANSACTIONAL_ID)),
        ("DESCRIBE", On.CLUSTER, "kafka-cluster"),
        ("DESCRIBE_CONFIGS", On.TOPIC, "*"),
    ],
    "keeper": [
        ("ALTER_CONFIGS", On.TOPIC, "open"),
        ("ALTER", On.TOPIC, "open"),
        ("DELETE", On.GROUP, "g"),
        ("ALTER_CONFIGS", On.CLUSTER, "kafka-cluster"),
        ("DESCRIBE_CONFIGS", On.CLUSTER, "kafka-cluster"),
    ],
    "banned": [("ALL", On.TOPIC, "*"), ("-READ", On.TOPIC, "open"), ("-ALL", On.GROUP, "g"), ("ALL", On.GROUP, "*")],
    "cluster": [
        (operation, On.CLUSTER, "kafka-cluster")
        for operation in ("CREATE", "ALTER", "CLUSTER_ACTION", "IDEMPOTENT_WRITE")
    ],
}
USERS = (*RIGHTS, "admin")
TOPICS = ("open", "closed", "absent")

JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required " + " ".join(
    ['username="admin"', 'password="admin-p"', *(f'user_{user}="{user}-p"' for user in USERS)]
)
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin;User:ANONYMOUS",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": JAAS + ";",
    "auto.create.topics.enable": "true",
}


class SecureKafka(ApacheKafka):
    """Apache Kafka with a listener for SASL alone; `prepare` sees when it answers."""

    def await_ready(self, process: Process, deadline: float) -> None:
        return None


def connected(broker: BrokerProcess, user: str) -> Wire:
    wire = Wire(broker.bootstrap)
    assert wire.call(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
    answer = wire.call(SaslAuthenticateRequest(auth_bytes=f"\0{user}\0{user}-p".encode()), 2)
    assert answer.error_code == 0, answer.error_message
    return wire


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BrokerProcess, BrokerProcess]]:
    """Apache Kafka and Ottla with the same users, rights and topics."""
    if reason := java.missing():
        pytest.skip(reason)
    port = free_port()
    controller = f"{HOST}:{free_port()}"
    kafka = SecureKafka(
        tmp_path_factory.mktemp("kafka"),
        port,
        overrides=SETTINGS
        | {
            "listeners": f"SASL_PLAINTEXT://{HOST}:{port},CONTROLLER://{controller}",
            "advertised.listeners": f"SASL_PLAINTEXT://{HOST}:{port}",
            "controller.quorum.voters": f"1@{controller}",
            "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "SASL_PLAINTEXT",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
        },
    )
    with kafka, SecureOttla(tmp_path_factory.mktemp("ottla"), f"SASL_PLAINTEXT://{HOST}:0", SETTINGS) as ottla:
        for broker in (kafka, ottla):
            prepare(broker)
        yield kafka, ottla


def prepare(broker: BrokerProcess) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            wire = connected(broker, "admin")
            break
        except (OSError, EOFError):
            assert time.monotonic() < deadline
            time.sleep(0.2)
    with closing(wire):
        topics = [
            create_topics.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
            for name in ("open", "closed", "doomed-by-name", "doomed-by-other")
        ]
        for answer in wire.call(create_topics.CreateTopicsRequest(topics=topics, timeout_ms=20_000), 7).topics:
            assert answer.error_code == 0
        creations = [entry(user, *right) for user, rights in RIGHTS.items() for right in rights]
        for answer in wire.call(create_acls.CreateAclsRequest(creations=creations), 3).results:
            assert answer.error_code == 0, answer.error_message
        everything = describe_acls.DescribeAclsRequest(
            resource_type_filter=1,
            resource_name_filter=None,
            pattern_type_filter=1,
            principal_filter=None,
            host_filter=None,
            operation=1,
            permission_type=1,
        )
        while sum(len(it.acls) for it in wire.call(everything, 3).resources) < len(creations):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        for keys, kind in ((["g", "h"], 0), (["x", "y"], 1)):
            asked = find_coordinator.FindCoordinatorRequest(key_type=kind, coordinator_keys=keys)
            while any(it.error_code for it in wire.call(asked, 4).coordinators):
                assert time.monotonic() < deadline
                time.sleep(0.1)
        for name in ("x", "y"):
            begin = init_producer_id.InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
            while wire.call(begin, 4).error_code:
                assert time.monotonic() < deadline
                time.sleep(0.1)
        for group in ("g", "h"):
            beat = heartbeat.HeartbeatRequest(group_id=group, member_id="m", generation_id=1)
            while wire.call(beat, 4).error_code != ErrorCode.UNKNOWN_MEMBER_ID:
                assert time.monotonic() < deadline
                time.sleep(0.1)


def entry(user: str, operation: str, resource: On, name: str) -> create_acls.AclCreation:
    is_prefix = name.endswith("*") and name != "*"
    return create_acls.AclCreation(
        resource_type=resource,
        resource_name=name[:-1] if is_prefix else name,
        resource_pattern_type=4 if is_prefix else 3,
        principal=f"User:{user}",
        host="*",
        operation=Op[operation.removeprefix("-")],
        permission_type=2 if operation.startswith("-") else 3,
    )


BATCH = build_batch([Record(value=b"v", timestamp_ms=1)])

# By API: a version, and requests that name what exists and what does not, what is open and what is not.
REQUESTS: Mapping[ApiKey, tuple[int, list[Any]]] = {
    ApiKey.PRODUCE: (
        9,
        [
            produce.ProduceRequest(
                transactional_id=transactional_id,
                acks=1,
                timeout_ms=5000,
                topic_data=[
                    produce.TopicProduceData(
                        name=name, partition_data=[produce.PartitionProduceData(index=0, records=BATCH)]
                    )
                    for name in TOPICS
                ],
            )
            for transactional_id in (None,)
        ],
    ),
    ApiKey.FETCH: (
        12,
        [
            fetch.FetchRequest(
                max_wait_ms=10,
                min_bytes=0,
                replica_id=replica,
                topics=[
                    fetch.FetchTopic(topic=name, partitions=[fetch.FetchPartition(partition=0, partition_max_bytes=1)])
                    for name in TOPICS
                ],
            )
            for replica in (-1,)
        ],
    ),
    ApiKey.LIST_OFFSETS: (
        7,
        [
            list_offsets.ListOffsetsRequest(
                replica_id=-1,
                topics=[
                    list_offsets.ListOffsetsTopic(
                        name=name, partitions=[list_offsets.ListOffsetsPartition(partition_index=0, timestamp=-1)]
                    )
                    for name in TOPICS
                ],
            )
        ],
    ),
    ApiKey.METADATA: (
        10,
        [
            metadata.MetadataRequest(
                topics=None if names is None else [metadata.MetadataRequestTopic(name=name) for name in names],
                allow_auto_topic_creation=creates,
                include_cluster_authorized_operations=True,
                include_topic_authorized_operations=True,
            )
            for names, creates in ((None, False), (TOPICS, False), (("auto",), True))
        ],
    ),
    ApiKey.OFFSET_COMMIT: (
        8,
        [
            offset_commit.OffsetCommitRequest(
                group_id=group,
                generation_id_or_member_epoch=-1,
                topics=[
                    offset_commit.OffsetCommitRequestTopic(
                        name=name, partitions=[offset_commit.OffsetCommitRequestPartition(partition_index=0)]
                    )
                    for name in TOPICS
                ],
            )
            for group in ("g", "h")
        ],
    ),
    ApiKey.OFFSET_FETCH: (
        8,
        [
            offset_fetch.OffsetFetchRequest(
                groups=[
                    offset_fetch.OffsetFetchRequestGroup(
                        group_id=group,
                        topics=None
                        if names is None
                        else [
                            offset_fetch.OffsetFetchRequestTopics(name=name, partition_indexes=[0]) for name in names
                        ],
                    )
                    for group in ("g", "h")
                ]
            )
            for names in (None, TOPICS)
        ],
    ),
    ApiKey.FIND_COORDINATOR: (
        4,
        [
            find_coordinator.FindCoordinatorRequest(key_type=0, coordinator_keys=["g", "h"]),
            find_coordinator.FindCoordinatorRequest(key_type=1, coordinator_keys=["x", "y"]),
        ],
    ),
    ApiKey.JOIN_GROUP: (
        7,
        [
            join_group.JoinGroupRequest(
                group_id=group,
                session_timeout_ms=6000,
                rebalance_timeout_ms=6000,
                protocol_type="consumer",
                protocols=[join_group.JoinGroupRequestProtocol(name="range", metadata=b"")],
            )
            for group in ("g", "h")
        ],
    ),
    ApiKey.HEARTBEAT: (4, [heartbeat.HeartbeatRequest(group_id=it, member_id="m", generation_id=1) for it in "gh"]),
    ApiKey.LEAVE_GROUP: (
        4,
        [
            leave_group.LeaveGroupRequest(group_id=it, members=[leave_group.MemberIdentity(member_id="m")])
            for it in "gh"
        ],
    ),
    ApiKey.SYNC_GROUP: (
        5,
        [
            sync_group.SyncGroupRequest(
                group_id=it, member_id="m", generation_id=1, protocol_type="consumer", protocol_name="range"
            )
            for it in "gh"
        ],
    ),
    ApiKey.DESCRIBE_GROUPS: (
        5,
        [describe_groups.DescribeGroupsRequest(groups=["g", "h", "i"], include_authorized_operations=True)],
    ),
    ApiKey.LIST_GROUPS: (4, [list_groups.ListGroupsRequest()]),
    ApiKey.CREATE_TOPICS: (
        7,
        [
            create_topics.CreateTopicsRequest(
                topics=[
                    create_topics.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
                    for name in ("open", "opened", "new")
                ],
                timeout_ms=5000,
                validate_only=True,
            )
        ],
    ),
    ApiKey.DELETE_TOPICS: (
        5,
        [delete_topics.DeleteTopicsRequest(topic_names=["absent", "doomed-by-other"], timeout_ms=5000)],
    ),
    ApiKey.DELETE_RECORDS: (
        2,
        [
            delete_records.DeleteRecordsRequest(
                topics=[
                    delete_records.DeleteRecordsTopic(
                        name=name, partitions=[delete_records.DeleteRecordsPartition(partition_index=0, offset=0)]
                    )
                    for name in TOPICS
                ],
                timeout_ms=5000,
            )
        ],
    ),
    ApiKey.INIT_PRODUCER_ID: (
        4,
        [
            init_producer_id.InitProducerIdRequest(transactional_id=it, transaction_timeout_ms=60_000)
            for it in (None, "x", "y")
        ],
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (
        4,
        [
            offset_for_leader_epoch.OffsetForLeaderEpochRequest(
                replica_id=-1,
                topics=[
                    offset_for_leader_epoch.OffsetForLeaderTopic(
                        topic=name, partitions=[offset_for_leader_epoch.OffsetForLeaderPartition(partition=0)]
                    )
                    for name in TOPICS
                ],
            )
        ],
    ),
    ApiKey.ADD_PARTITIONS_TO_TXN: (
        3,
        [
            add_partitions_to_txn.AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=it,
                v3_and_below_producer_id=77_777,
                v3_and_below_topics=[
                    add_partitions_to_txn.AddPartitionsToTxnTopic(name=name, partitions=[0]) for name in names
                ],
            )
            for it in ("x", "y")
            for names in (("open",), ("open", "closed"))
        ],
    ),
    ApiKey.ADD_OFFSETS_TO_TXN: (
        3,
        [
            add_offsets_to_txn.AddOffsetsToTxnRequest(transactional_id=it, producer_id=77_777, group_id=group)
            for it in ("x", "y")
            for group in ("g", "h")
        ],
    ),
    ApiKey.END_TXN: (3, [end_txn.EndTxnRequest(transactional_id=it, producer_id=77_777) for it in ("x", "y")]),
    ApiKey.WRITE_TXN_MARKERS: (
        1,
        [
            write_txn_markers.WriteTxnMarkersRequest(
                markers=[
                    write_txn_markers.WritableTxnMarker(
                        producer_id=1,
                        topics=[
                            write_txn_markers.WritableTxnMarkerTopic(name="absent", partition_indexes=[0]),
                        ],
                    )
                ]
            )
        ],
    ),
    ApiKey.TXN_OFFSET_COMMIT: (
        3,
        [
            txn_offset_commit.TxnOffsetCommitRequest(
                transactional_id=it,
                group_id=group,
                producer_id=77_777,
                topics=[
                    txn_offset_commit.TxnOffsetCommitRequestTopic(
                        name="closed", partitions=[txn_offset_commit.TxnOffsetCommitRequestPartition(partition_index=0)]
                    )
                ],
            )
            for it in ("x", "y")
            for group in ("g", "h")
        ],
    ),
    ApiKey.DESCRIBE_ACLS: (
        3,
        [
            describe_acls.DescribeAclsRequest(
                resource_type_filter=2,
                resource_name_filter="open",
                pattern_type_filter=2,
                principal_filter=None,
                host_filter=None,
                operation=1,
                permission_type=1,
            )
        ],
    ),
    ApiKey.CREATE_ACLS: (3, [create_acls.CreateAclsRequest(creations=[entry("reader", "READ", On.GROUP, "g")])]),
    ApiKey.DELETE_ACLS: (
        3,
        [
            delete_acls.DeleteAclsRequest(
                filters=[
                    delete_acls.DeleteAclsFilter(
                        resource_type_filter=2,
                        resource_name_filter="nothing",
                        pattern_type_filter=3,
                        principal_filter=None,
                        host_filter=None,
                        operation=1,
                        permission_type=1,
                    )
                ]
            )
        ],
    ),
    ApiKey.DESCRIBE_CONFIGS: (
        4,
        [
            describe_configs.DescribeConfigsRequest(
                resources=[
                    describe_configs.DescribeConfigsResource(
                        resource_type=kind, resource_name=name, configuration_keys=["retention.ms"]
                    )
                    for kind, name in ((2, "open"), (2, "closed"), (2, "absent"), (4, "1"), (8, "1"), (32, "g"))
                ]
            )
        ],
    ),
    ApiKey.ALTER_CONFIGS: (
        2,
        [
            alter_configs.AlterConfigsRequest(
                resources=[
                    alter_configs.AlterConfigsResource(
                        resource_type=kind,
                        resource_name=name,
                        configs=[alter_configs.AlterableConfig(name=config, value="60000")],
                    )
                    for kind, name, config in (
                        (2, "open", "retention.ms"),
                        (2, "closed", "retention.ms"),
                        (4, "1", "message.max.bytes"),
                    )
                ],
                validate_only=True,
            )
        ],
    ),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (
        1,
        [
            incremental_alter_configs.IncrementalAlterConfigsRequest(
                resources=[
                    incremental_alter_configs.AlterConfigsResource(
                        resource_type=kind,
                        resource_name=name,
                        configs=[
                            incremental_alter_configs.AlterableConfig(name=config, config_operation=0, value="60000")
                        ],
                    )
                    for kind, name, config in (
                        (2, "open", "retention.ms"),
                        (2, "closed", "retention.ms"),
                        (4, "1", "message.max.bytes"),
                        (32, "g", "consumer.session.timeout.ms"),
                    )
                ],
                validate_only=True,
            )
        ],
    ),
    ApiKey.ALTER_REPLICA_LOG_DIRS: (
        2,
        [
            alter_replica_log_dirs.AlterReplicaLogDirsRequest(
                dirs=[
                    alter_replica_log_dirs.AlterReplicaLogDir(
                        path="/nowhere",
                        topics=[alter_replica_log_dirs.AlterReplicaLogDirTopic(name="open", partitions=[0])],
                    )
                ]
            )
        ],
    ),
    ApiKey.DESCRIBE_LOG_DIRS: (
        4,
        [
            describe_log_dirs.DescribeLogDirsRequest(
                topics=[describe_log_dirs.DescribableLogDirTopic(topic="open", partitions=[0])]
            )
        ],
    ),
    ApiKey.CREATE_PARTITIONS: (
        3,
        [
            create_partitions.CreatePartitionsRequest(
                topics=[create_partitions.CreatePartitionsTopic(name=name, count=3) for name in TOPICS],
                timeout_ms=5000,
                validate_only=True,
            )
        ],
    ),
    ApiKey.DELETE_GROUPS: (2, [delete_groups.DeleteGroupsRequest(groups_names=["g-not", "i"])]),
    ApiKey.ELECT_LEADERS: (
        2,
        [
            elect_leaders.ElectLeadersRequest(
                topic_partitions=[elect_leaders.TopicPartitions(topic="open", partitions=[0])], timeout_ms=5000
            )
        ],
    ),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (
        0,
        [
            alter_partition_reassignments.AlterPartitionReassignmentsRequest(
                timeout_ms=5000,
                topics=[
                    alter_partition_reassignments.ReassignableTopic(
                        name="open",
                        partitions=[
                            alter_partition_reassignments.ReassignablePartition(partition_index=0, replicas=None)
                        ],
                    )
                ],
            )
        ],
    ),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (
        0,
        [list_partition_reassignments.ListPartitionReassignmentsRequest(timeout_ms=5000, topics=None)],
    ),
    ApiKey.OFFSET_DELETE: (
        0,
        [
            offset_delete.OffsetDeleteRequest(
                group_id=group,
                topics=[
                    offset_delete.OffsetDeleteRequestTopic(
                        name=name, partitions=[offset_delete.OffsetDeleteRequestPartition(partition_index=0)]
                    )
                    for name in TOPICS
                ],
            )
            for group in ("i", "j")
        ],
    ),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: (1, [describe_client_quotas.DescribeClientQuotasRequest()]),
    ApiKey.ALTER_CLIENT_QUOTAS: (
        1,
        [
            alter_client_quotas.AlterClientQuotasRequest(
                entries=[
                    alter_client_quotas.EntryData(
                        entity=[alter_client_quotas.EntityData(entity_type="user", entity_name="u")],
                        ops=[alter_client_quotas.OpData(key="producer_byte_rate", value=1e9, remove=False)],
                    )
                ],
                validate_only=True,
            )
        ],
    ),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: (
        0,
        [
            describe_user_scram_credentials.DescribeUserScramCredentialsRequest(
                users=[describe_user_scram_credentials.UserName(name="u")]
            )
        ],
    ),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (
        0,
        [
            alter_user_scram_credentials.AlterUserScramCredentialsRequest(
                deletions=[alter_user_scram_credentials.ScramCredentialDeletion(name="u", mechanism=1)]
            )
        ],
    ),
    ApiKey.DESCRIBE_QUORUM: (
        1,
        [
            describe_quorum.DescribeQuorumRequest(
                topics=[
                    describe_quorum.TopicData(
                        topic_name="__cluster_metadata", partitions=[describe_quorum.PartitionData(partition_index=0)]
                    )
                ]
            )
        ],
    ),
    ApiKey.UPDATE_FEATURES: (
        1,
        [
            update_features.UpdateFeaturesRequest(
                feature_updates=[
                    update_features.FeatureUpdateKey(feature="group.version", max_version_level=1, upgrade_type=1)
                ],
                validate_only=True,
            )
        ],
    ),
    ApiKey.DESCRIBE_CLUSTER: (
        1,
        [describe_cluster.DescribeClusterRequest(include_cluster_authorized_operations=True)],
    ),
    ApiKey.DESCRIBE_PRODUCERS: (
        0,
        [
            describe_producers.DescribeProducersRequest(
                topics=[describe_producers.TopicRequest(name=name, partition_indexes=[0]) for name in TOPICS]
            )
        ],
    ),
    ApiKey.DESCRIBE_TRANSACTIONS: (
        0,
        [describe_transactions.DescribeTransactionsRequest(transactional_ids=["x", "y", "z"])],
    ),
    ApiKey.LIST_TRANSACTIONS: (0, [list_transactions.ListTransactionsRequest()]),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (
        0,
        [
            consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
                group_id=group, member_id="m", member_epoch=5, subscribed_topic_names=names
            )
            for group in ("g", "h")
            for names in (None, ["open"], ["closed"])
        ],
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (
        0,
        [
            consumer_group_describe.ConsumerGroupDescribeRequest(
                group_ids=["g", "i"], include_authorized_operations=True
            )
        ],
    ),
    ApiKey.UNREGISTER_BROKER: (0, [unregister_broker.UnregisterBrokerRequest(broker_id=77)]),
    ApiKey.UNREGISTER_CONTROLLER: (0, [unregister_controller.UnregisterControllerRequest(controller_id=77)]),
    ApiKey.LIST_CONFIG_RESOURCES: (1, [list_config_resources.ListConfigResourcesRequest(resource_types=[16])]),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (
        0,
        [
            describe_topic_partitions.DescribeTopicPartitionsRequest(
                topics=[describe_topic_partitions.TopicRequest(name=name) for name in names]
            )
            for names in (TOPICS, ())
        ],
    ),
}

NOBODYS_ID = UUID(int=77)


def state_of(message: Any, data: Any, partition: Any) -> list[Any]:
    """A request about the state of a share partition, which brokers alone may make."""
    return [message(group_id="g", topics=[data(topic_id=NOBODYS_ID, partitions=[partition(partition=0)])])]


SHARE_REQUESTS: Mapping[ApiKey, tuple[int, list[Any]]] = {
    ApiKey.SHARE_GROUP_HEARTBEAT: (
        1,
        [
            share_group_heartbeat.ShareGroupHeartbeatRequest(
                group_id=group, member_id="m", member_epoch=5, subscribed_topic_names=names
            )
            for group in ("g", "h")
            for names in (None, ["open"], ["closed"])
        ],
    ),
    ApiKey.SHARE_GROUP_DESCRIBE: (
        1,
        [share_group_describe.ShareGroupDescribeRequest(group_ids=["g", "i"], include_authorized_operations=True)],
    ),
    ApiKey.SHARE_FETCH: (1, [share_fetch.ShareFetchRequest(group_id=it, member_id="m") for it in ("g", "h")]),
    ApiKey.SHARE_ACKNOWLEDGE: (
        1,
        [share_acknowledge.ShareAcknowledgeRequest(group_id=it, member_id="m") for it in ("g", "h")],
    ),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: (
        0,
        [
            describe_share_group_offsets.DescribeShareGroupOffsetsRequest(
                groups=[
                    describe_share_group_offsets.DescribeShareGroupOffsetsRequestGroup(
                        group_id=group,
                        topics=[
                            describe_share_group_offsets.DescribeShareGroupOffsetsRequestTopic(
                                topic_name=name, partitions=[0]
                            )
                            for name in ("closed",)
                        ],
                    )
                    for group in ("g", "i")
                ]
            )
        ],
    ),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: (
        0,
        [
            alter_share_group_offsets.AlterShareGroupOffsetsRequest(
                group_id=group,
                topics=[
                    alter_share_group_offsets.AlterShareGroupOffsetsRequestTopic(
                        topic_name=name,
                        partitions=[
                            alter_share_group_offsets.AlterShareGroupOffsetsRequestPartition(partition_index=0)
                        ],
                    )
                    for name in ("open", "closed")
                ],
            )
            for group in ("g", "i")
        ],
    ),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: (
        0,
        [
            delete_share_group_offsets.DeleteShareGroupOffsetsRequest(
                group_id=group,
                topics=[
                    delete_share_group_offsets.DeleteShareGroupOffsetsRequestTopic(topic_name=name)
                    for name in ("open", "closed")
                ],
            )
            for group in ("g", "i")
        ],
    ),
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: (
        0,
        state_of(
            initialize_share_group_state.InitializeShareGroupStateRequest,
            initialize_share_group_state.InitializeStateData,
            initialize_share_group_state.PartitionData,
        ),
    ),
    ApiKey.READ_SHARE_GROUP_STATE: (
        0,
        state_of(
            read_share_group_state.ReadShareGroupStateRequest,
            read_share_group_state.ReadStateData,
            read_share_group_state.PartitionData,
        ),
    ),
    ApiKey.WRITE_SHARE_GROUP_STATE: (
        0,
        state_of(
            write_share_group_state.WriteShareGroupStateRequest,
            write_share_group_state.WriteStateData,
            write_share_group_state.PartitionData,
        ),
    ),
    ApiKey.DELETE_SHARE_GROUP_STATE: (
        0,
        state_of(
            delete_share_group_state.DeleteShareGroupStateRequest,
            delete_share_group_state.DeleteStateData,
            delete_share_group_state.PartitionData,
        ),
    ),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: (
        0,
        state_of(
            read_share_group_state_summary.ReadShareGroupStateSummaryRequest,
            read_share_group_state_summary.ReadStateSummaryData,
            read_share_group_state_summary.PartitionData,
        ),
    ),
}
STREAMS_AND_QUORUM_REQUESTS: Mapping[ApiKey, tuple[int, list[Any]]] = {
    ApiKey.STREAMS_GROUP_HEARTBEAT: (
        0,
        [
            streams_group_heartbeat.StreamsGroupHeartbeatRequest(
                group_id=group, member_id="m", member_epoch=0, rebalance_timeout_ms=1000, process_id="p",
                topology=streams_group_heartbeat.Topology(
                    subtopologies=[streams_group_heartbeat.Subtopology(subtopology_id="0", source_topics=topics)]
                ),
                active_tasks=[], standby_tasks=[], warmup_tasks=[],
            )
            for group in ("g", "h")
            for topics in (["open"], ["closed"], ["open", "absent"])
        ],
    ),
    ApiKey.STREAMS_GROUP_DESCRIBE: (
        0,
        [streams_group_describe.StreamsGroupDescribeRequest(group_ids=["g", "i"], include_authorized_operations=True)],
    ),
    ApiKey.ADD_RAFT_VOTER: (
        0,
        [add_raft_voter.AddRaftVoterRequest(cluster_id=None, timeout_ms=1000, voter_id=77, listeners=[])],
    ),
    ApiKey.REMOVE_RAFT_VOTER: (0, [remove_raft_voter.RemoveRaftVoterRequest(cluster_id=None, voter_id=77)]),
}  # fmt: skip
# Of these who is let in is answered by what the cluster is at the moment: only refusals are compared.
ONLY_REFUSALS = (frozenset(SHARE_REQUESTS) - {ApiKey.SHARE_GROUP_DESCRIBE}) | {
    ApiKey.STREAMS_GROUP_HEARTBEAT,
    ApiKey.ADD_RAFT_VOTER,
    ApiKey.REMOVE_RAFT_VOTER,
}
ALL_REQUESTS = {**REQUESTS, **SHARE_REQUESTS, **STREAMS_AND_QUORUM_REQUESTS}

COMPARED = ("error_code", "partition_error_code", "topic_config_error_code", "authorized_operations")
NAMES = ("name", "topic", "topic_name", "group_id", "transactional_id", "resource_name", "key", "principal", "log_dir")
INTERNAL = ("__consumer_offsets", "__transaction_state", "doomed-by-name")


def compared(value: Any) -> Any:
    """What has to be alike, in an order of its own."""
    if isinstance(value, list):
        return sorted((it for it in map(compared, value) if it is not None), key=repr)
    if not isinstance(value, Struct):
        return None
    names = {field.name: getattr(value, field.name) for field in value.FIELDS}
    if names.get("name") in INTERNAL or names.get("resource_name") in INTERNAL:
        return None
    if names.get("name") == "auto" and names["error_code"] in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
        return {"name": "auto", "created": True}  # Kafka says so before the topic is there
    found: dict[str, Any] = {}
    for name, it in names.items():
        if name in NAMES and name != "log_dir":
            found[name] = it
        elif name.endswith(COMPARED) and it is not None:
            found[name] = ErrorCode(it).name if name.endswith("error_code") else it
        elif isinstance(it, list) and name != "configs" and (inner := compared(it)):
            found[name] = inner
    return found


def asked(broker: BrokerProcess, user: str, request: Request, version: int) -> Any:
    with closing(connected(broker, user)) as wire:
        try:
            return compared(wire.call(request, version))
        except EOFError:
            return "closed"


def test_every_api_has_a_row() -> None:
    tokens = {key for key in served() if "DELEGATION_TOKEN" in key.name}
    everybody = {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}
    unlike = {ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE}  # Kafka refuses it without a plugin.
    # Neither broker serves them without a place for what clients push.
    assert set(ALL_REQUESTS) == set(served()) - tokens - everybody - unlike - needing_http()


@pytest.mark.parametrize("key", ALL_REQUESTS, ids=lambda key: key.name.lower())
def test_the_same_is_refused(key: ApiKey, brokers: tuple[BrokerProcess, BrokerProcess]) -> None:
    version, requests = ALL_REQUESTS[key]
    kafka, ottla = brokers
    different = {}
    for user in USERS:
        for number, request in enumerate(requests):
            expected, found = (asked(broker, user, request, version) for broker in (kafka, ottla))
            if key in ONLY_REFUSALS and "AUTHORIZATION_FAILED" not in f"{expected}{found}":
                continue
            if found != expected:
                different[user, number] = {"kafka": expected, "ottla": found}
    assert not different, "\n" + "\n".join(f"{who}: {them}" for who, them in different.items())
