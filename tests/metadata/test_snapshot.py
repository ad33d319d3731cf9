"""The metadata that is kept beside objects: what is in it, what never is, and the cluster that is made of it."""

from __future__ import annotations

from uuid import UUID

import pytest

from ottla.metadata import keys
from ottla.metadata.image import ConfigResource, MetadataImage, PartitionState, ResourceType
from ottla.metadata.image_delta import evolve
from ottla.metadata.snapshot import RestoredTopic, SnapshotError, decode_snapshot, encode_snapshot, restored_metadata
from ottla.metastore.store import KeyValue, Put

TOPIC_ID = UUID(int=7)
SECRET = "s3cr3t"
ALL_BROKERS = ConfigResource(ResourceType.BROKER, "")


def entries() -> list[KeyValue]:
    state = PartitionState(2, (1, 2), (2,), 5, 9)
    pairs = {
        keys.CLUSTER_ID: keys.encode("cluster"),
        keys.PRODUCER_IDS: keys.encode(5000),
        keys.feature("metadata.version"): keys.encode(30),
        keys.topic("trips"): keys.encode_topic(TOPIC_ID, [(1, 2), (2, 1)], {"retention.ms": "7"}),
        keys.partition(TOPIC_ID, 0): keys.encode_partition(state, {2: 1}),
        keys.starts(2): keys.encode(4),
        keys.configs(ALL_BROKERS): keys.encode(
            {
                "log.retention.ms": "8",
                "ssl.keystore.password": SECRET,
                "listener.name.x.ssl.key.password": SECRET,
                "plug-in.of.somebody": SECRET,
            }
        ),
        keys.configs(ConfigResource(ResourceType.BROKER, "2")): keys.encode({"sasl.jaas.config": SECRET}),
        keys.quota((("user", "ann"),)): keys.encode({"producer_byte_rate": 1024.0}),
        f"{keys.SCRAM}1/ann": keys.encode({"salt": SECRET}),
        f"{keys.DELEGATION_TOKENS}id": keys.encode({"owner": SECRET}),
        keys.broker(2): keys.encode({"endpoints": SECRET}),
        keys.CONTROLLER: keys.encode(2),
    }
    return [KeyValue(key, value, 1, 1) for key, value in pairs.items()]


def test_secrets_and_machines_are_not_in_it() -> None:
    content = encode_snapshot(entries())
    assert SECRET.encode() not in content
    image = decode_snapshot(content).image
    assert dict(image.resource_configs(ALL_BROKERS)) == {"log.retention.ms": "8"}
    assert not image.brokers
    assert not image.scram_credentials


def test_the_same_metadata_is_the_same_content() -> None:
    assert encode_snapshot(entries()) == encode_snapshot(reversed(entries()))


def test_a_cluster_is_made_of_it() -> None:
    found = decode_snapshot(encode_snapshot(entries()))
    assert found.image.topics["trips"].partitions[0].leader_epoch == 5 + 3
    topic = RestoredTopic("trips", TOPIC_ID, 3, found.image.topics["trips"].configs)
    operations = restored_metadata(
        "cluster",
        [topic],
        found.kept,
        node_id=1,
        leader_epoch=1_000_000,
        generation=1,
        producer_ids=found.producer_ids,
    )
    puts = [KeyValue(each.key, each.value, 1, 1) for each in operations if isinstance(each, Put)]
    assert len(puts) == len(operations) == len({entry.key for entry in puts})
    image = evolve(MetadataImage(), 1, puts, ()).after
    (trips,) = image.topics.values()
    assert dict(trips.configs) == {"retention.ms": "7"}
    assert trips.partitions == (PartitionState(1, (1,), (1,), 1_000_000, 1_000_000),) * 3
    assert image.features == {"metadata.version": 30}
    assert image.quotas == {(("user", "ann"),): {"producer_byte_rate": 1024.0}}
    values = {
        entry.key: keys.decode(entry.value) for entry in puts if entry.key in (keys.PRODUCER_IDS, keys.CLUSTER_ID)
    }
    assert values == {keys.CLUSTER_ID: "cluster", keys.PRODUCER_IDS: 1_005_000}


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"entries": 3}', b'{"entries": {"/topics/a": "{"}}'])
def test_what_is_no_snapshot_is_refused(content: bytes) -> None:
    with pytest.raises(SnapshotError):
        decode_snapshot(content)
