"""Kafka's command line tools, every verb: Ottla and Apache Kafka make each print the same, and end the same.

A scenario is a list of commands as an operator types them; `!` stands before one that must fail. Each is run against
both brokers, all in one JVM. What may differ is taken out by `comparable`; what differs on purpose is in
docs/compatibility.md.
"""

from __future__ import annotations

import json
import re
import shlex
import time
from pathlib import Path

import pytest

from compat_tests.brokers.apache_kafka import CLUSTER_ID
from compat_tests.brokers.process import BrokerProcess
from compat_tests.java.tools import Done, JavaTools
from ottla.server.apis.table import served as served_apis

pytestmark = pytest.mark.java

TOOLS = {
    "kafka-acls": "AclCommand",
    "kafka-broker-api-versions": "BrokerApiVersionsCommand",
    "kafka-client-metrics": "ClientMetricsCommand",
    "kafka-cluster": "ClusterTool",
    "kafka-configs": "ConfigCommand",
    "kafka-consumer-perf-test": "ConsumerPerformance",
    "kafka-delete-records": "DeleteRecordsCommand",
    "kafka-e2e-latency": "EndToEndLatency",
    "kafka-features": "FeatureCommand",
    "kafka-get-offsets": "GetOffsetShell",
    "kafka-groups": "GroupsCommand",
    "kafka-leader-election": "LeaderElectionCommand",
    "kafka-log-dirs": "LogDirsCommand",
    "kafka-metadata-quorum": "MetadataQuorumCommand",
    "kafka-producer-perf-test": "ProducerPerformance",
    "kafka-reassign-partitions": "reassign.ReassignPartitionsCommand",
    "kafka-streams-application-reset": "StreamsResetter",
    "kafka-topics": "TopicCommand",
    "kafka-verifiable-consumer": "VerifiableConsumer",
}

# What changes nothing, and may be asked again.
READS = re.compile(r"--describe|--list|--generate|kafka-get-offsets")

# These have actions, behind which the bootstrap servers must stand.
BOOTSTRAP_LAST = ("kafka-cluster",)

FILES = {
    "deleted.json": {"version": 1, "partitions": [{"topic": "records", "partition": 0, "offset": 30}]},
    "beyond.json": {"version": 1, "partitions": [{"topic": "records", "partition": 0, "offset": 3000}]},
    "elected.json": {"partitions": [{"topic": "elected", "partition": 0}]},
    "moved.json": {"version": 1, "topics": [{"topic": "moved"}]},
    "stay.json": {"version": 1, "partitions": [{"topic": "moved", "partition": 0, "replicas": [1]}]},
    "away.json": {"version": 1, "partitions": [{"topic": "moved", "partition": 0, "replicas": [2]}]},
    "folder.json": {
        "version": 1,
        "partitions": [{"topic": "moved", "partition": 0, "replicas": [1], "log_dirs": ["/nowhere"]}],
    },
}

SCENARIOS = {
    "topics": """
        kafka-topics --create --topic t --partitions 3 --config retention.ms=600000
        ! kafka-topics --create --topic t
        kafka-topics --create --topic t --if-not-exists
        ! kafka-topics --create --topic 'bad name'
        kafka-topics --create --topic u.v
        ! kafka-topics --create --topic u_v
        ! kafka-topics --create --topic r --replication-factor 2
        kafka-topics --create --topic ra --replica-assignment 1,1
        ! kafka-topics --create --topic rb --replica-assignment 2
        ! kafka-topics --create --topic c --config retention.mss=1
        ! kafka-topics --create --topic c --config retention.ms=x
        ! kafka-topics --create --topic c --partitions 0
        kafka-topics --create --topic c --config cleanup.policy=compact --config segment.bytes=2000000
        kafka-topics --list
        kafka-topics --list --exclude-internal
        kafka-topics --list --topic u.*
        kafka-topics --describe
        kafka-topics --describe --topic t
        ! kafka-topics --describe --topic nope
        kafka-topics --describe --topic nope --if-exists
        kafka-topics --describe --topic t,c --exclude-internal
        kafka-topics --describe --partition-size-limit-per-response 1
        kafka-topics --describe --under-replicated-partitions
        kafka-topics --describe --unavailable-partitions
        kafka-topics --describe --under-min-isr-partitions
        kafka-topics --describe --at-min-isr-partitions
        kafka-topics --alter --topic t --partitions 5
        ! kafka-topics --alter --topic t --partitions 5
        ! kafka-topics --alter --topic t --partitions 2
        ! kafka-topics --alter --topic nope --partitions 2
        kafka-topics --alter --topic nope --partitions 2 --if-exists
        kafka-topics --alter --topic t --partitions 6 --replica-assignment 1,1,1,1,1,1
        ! kafka-topics --delete --topic nope
        kafka-topics --delete --topic nope --if-exists
        kafka-topics --delete --topic u.v
        kafka-topics --list
    """,
    "configs of topics": """
        kafka-topics --create --topic configured --config retention.ms=600000
        kafka-configs --describe --topic configured
        kafka-configs --describe --topic configured --all
        kafka-configs --describe --entity-type topics --entity-name configured
        kafka-configs --alter --topic configured --add-config max.message.bytes=5000,cleanup.policy=[compact,delete]
        kafka-configs --describe --topic configured
        kafka-configs --alter --topic configured --delete-config max.message.bytes
        kafka-configs --alter --topic configured --delete-config nonsense
        kafka-configs --alter --topic configured --add-config retention.ms=5 --delete-config cleanup.policy
        ! kafka-configs --alter --topic configured --add-config nonsense=1
        ! kafka-configs --alter --topic configured --add-config retention.ms=abc
        ! kafka-configs --alter --topic configured --add-config cleanup.policy=shred
        ! kafka-configs --alter --topic nope --add-config retention.ms=1
        kafka-configs --describe --topic configured
        kafka-configs --describe --topic nope
        kafka-topics --describe --topics-with-overrides --topic configured
    """,
    "configs of brokers": """
        kafka-configs --describe --broker 1
        kafka-configs --describe --broker 9
        kafka-configs --describe --broker-defaults
        kafka-configs --alter --broker 1 --add-config log.cleaner.threads=2
        kafka-configs --describe --broker 1
        kafka-configs --alter --broker-defaults --add-config log.retention.ms=1000000
        kafka-configs --describe --broker-defaults
        ! kafka-configs --alter --broker 1 --add-config num.partitions=3
        ! kafka-configs --alter --broker 1 --add-config log.cleaner.threads=abc
        kafka-configs --alter --broker 1 --delete-config log.cleaner.threads
        kafka-configs --alter --broker-defaults --delete-config log.retention.ms
        kafka-configs --describe --entity-type brokers
    """,
    "loggers": """
        kafka-configs --alter --broker-logger 1 --add-config root=DEBUG
        ! kafka-configs --alter --broker-logger 1 --add-config no.such.logger=DEBUG
        ! kafka-configs --alter --broker-logger 1 --add-config root=LOUD
        ! kafka-configs --alter --broker-logger 1 --delete-config root
        kafka-configs --alter --broker-logger 1 --add-config root=ERROR
    """,
    "configs of groups": """
        kafka-configs --describe --group g
        kafka-configs --alter --group g --add-config consumer.session.timeout.ms=7000
        kafka-configs --describe --group g
        kafka-configs --describe --entity-type groups
        ! kafka-configs --alter --group g --add-config nonsense=1
        ! kafka-configs --alter --group g --add-config consumer.session.timeout.ms=1
        kafka-configs --alter --group g --delete-config consumer.session.timeout.ms
        kafka-configs --describe --group g --all
    """,
    "quotas": """
        kafka-configs --alter --entity-type clients --entity-name c1 --add-config producer_byte_rate=1024
        kafka-configs --alter --client-defaults --add-config consumer_byte_rate=2048
        kafka-configs --alter --user ann --add-config producer_byte_rate=1024,request_percentage=200
        kafka-configs --alter --user-defaults --add-config controller_mutation_rate=10
        kafka-configs --alter --user ann --client c1 --add-config consumer_byte_rate=1
        kafka-configs --alter --ip 127.0.0.1 --add-config connection_creation_rate=1000
        kafka-configs --alter --ip-defaults --add-config connection_creation_rate=5000
        kafka-configs --describe --entity-type clients
        kafka-configs --describe --client c1
        kafka-configs --describe --user ann --client c1
        kafka-configs --describe --entity-type ips
        kafka-configs --describe --ip 127.0.0.1
        ! kafka-configs --alter --client c1 --add-config nonsense=5
        ! kafka-configs --alter --client c1 --add-config producer_byte_rate=-5
        ! kafka-configs --alter --client c1 --delete-config consumer_byte_rate
        kafka-configs --alter --client c1 --delete-config producer_byte_rate
        kafka-configs --alter --client-defaults --delete-config consumer_byte_rate
        kafka-configs --alter --user ann --client c1 --delete-config consumer_byte_rate
        kafka-configs --describe --entity-type clients
    """,
    "client metrics": """
        kafka-configs --alter --client-metrics cm --add-config metrics=a.,interval.ms=30000,match=[client_id=a.*]
        kafka-configs --describe --client-metrics cm
        kafka-configs --describe --entity-type client-metrics
        ! kafka-configs --alter --client-metrics cm --add-config interval.ms=5
        kafka-configs --alter --client-metrics cm --delete-config metrics,match,interval.ms
        kafka-client-metrics --alter --name cm2 --interval 30000 --metrics * --match client_id=x
        kafka-client-metrics --list
        kafka-client-metrics --describe
        kafka-client-metrics --describe --name cm2
        kafka-client-metrics --describe --name nope
        kafka-client-metrics --delete --name cm2
        kafka-client-metrics --delete --name nope
        kafka-client-metrics --list
    """,
    "records": """
        kafka-topics --create --topic records
        kafka-producer-perf-test --topic records --num-records 100 --record-size 10 --throughput -1
        kafka-consumer-perf-test --topic records --num-records 100 --group perf
        kafka-groups --list
        kafka-get-offsets --topic records
        kafka-get-offsets --topic records --time earliest
        kafka-get-offsets --topic records --time -2
        kafka-get-offsets --topic records --time 0
        kafka-get-offsets --topic records --time earliest-local
        kafka-get-offsets --topic records --time latest-tiered
        kafka-get-offsets --topic-partitions records:0-2
        kafka-get-offsets --partitions 0 --topic records
        ! kafka-get-offsets --topic nope
        kafka-delete-records --offset-json-file {deleted.json}
        kafka-get-offsets --topic records --time earliest
        kafka-delete-records --offset-json-file {beyond.json}
        kafka-log-dirs --describe --topic-list records
        kafka-log-dirs --describe --topic-list nope --broker-list 1
        ! kafka-log-dirs --describe --broker-list 1,7
        kafka-verifiable-consumer --topic records --group-id verified --max-messages 70 --reset-policy earliest
        kafka-e2e-latency --topic records --num-records 5 --producer-acks 1 --record-size 10
        kafka-streams-application-reset --application-id app --input-topics records
        ! kafka-streams-application-reset --application-id app --input-topics nope
    """,
    "cluster": """
        kafka-cluster cluster-id
        kafka-cluster list-endpoints
        kafka-cluster list-endpoints --include-fenced-brokers
        ! kafka-cluster unregister --id 7
        ! kafka-cluster unregister-controller --id 7
        ! kafka-cluster unregister-controller --id 1
        kafka-metadata-quorum describe --status
        kafka-metadata-quorum describe --replication
        kafka-features describe
        kafka-features upgrade --feature group.version=1
        ! kafka-features upgrade --feature group.version=9
        ! kafka-features upgrade --feature nope.version=9
        kafka-features downgrade --feature group.version=0
        kafka-features disable --feature group.version
        kafka-features disable --feature group.version --dry-run
        kafka-features upgrade --feature group.version=1
        kafka-features version-mapping
        kafka-features feature-dependencies --feature group.version=1
    """,
    "leaders": """
        kafka-topics --create --topic elected --partitions 2
        kafka-leader-election --election-type preferred --topic elected --partition 0
        kafka-leader-election --election-type unclean --topic elected --partition 0
        kafka-leader-election --election-type preferred --all-topic-partitions
        kafka-leader-election --election-type unclean --path-to-json-file {elected.json}
        ! kafka-leader-election --election-type preferred --topic nope --partition 0
    """,
    "reassignment": """
        kafka-topics --create --topic moved
        kafka-reassign-partitions --generate --topics-to-move-json-file {moved.json} --broker-list 1
        kafka-reassign-partitions --execute --reassignment-json-file {stay.json}
        kafka-reassign-partitions --execute --reassignment-json-file {stay.json} --throttle 1000000
        kafka-reassign-partitions --verify --reassignment-json-file {stay.json}
        kafka-reassign-partitions --list
        kafka-reassign-partitions --cancel --reassignment-json-file {stay.json}
        ! kafka-reassign-partitions --execute --reassignment-json-file {away.json}
    """,
    "access control": """
        ! kafka-acls --list
        ! kafka-acls --add --allow-principal User:a --operation Read --topic t
        ! kafka-acls --remove --allow-principal User:a --operation Read --topic t --force
    """,
}

Both = tuple[BrokerProcess, BrokerProcess]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for name, content in FILES.items():
        (tmp_path / name).write_text(json.dumps(content))
    return tmp_path


def run(jvm: JavaTools, broker: BrokerProcess, command: str, files: Path) -> Done:
    name, *words = shlex.split(re.sub(r"\{(\S+)\}", rf"{files}/\1", command.removeprefix("! ")))
    bootstrap = ["--bootstrap-server", broker.bootstrap]
    return jvm.run(TOOLS[name], *(words + bootstrap if name in BOOTSTRAP_LAST else bootstrap + words))


# In the order in which they are taken out of what a tool prints.
NOT_COMPARED = (
    (r"\n\tat [^\n]+", ""),  # of stack traces
    (r"TopicId: \S+", "TopicId: …"),
    (CLUSTER_ID, "CLUSTER"),
    (r"Cluster ID: \S+", "Cluster ID: CLUSTER"),
    (r"ClusterId:( +)\S+", r"ClusterId:\1CLUSTER"),
    (r"127\.0\.0\.1 \d+", "127.0.0.1 PORT"),
    # Kafka's feature eligible.leader.replicas.version sets this for the whole cluster.
    (r"min\.insync\.replicas=1,?|  min\.insync\.replicas=1 [^\n]*\n|DYNAMIC_DEFAULT_BROKER_CONFIG:, ", ""),
    (r"  ottla\.[^\n]*\n", ""),
    (r"Feature: kraft\S+ [^\n]*\n", ""),
    (r"Epoch: \d+", "Epoch: …"),
    # The voters' addresses are those of the controllers' listener, which Ottla does not need.
    (r'"endpoints": \[[^]]*\]', '"endpoints": …'),
    (r"HighWatermark: +\d+", "HighWatermark: …"),
    (r"(?m)^1\s+(A{22})\s+\d+\s+0\s+\d+\s+\d+", r"1 \1 … 0 … …"),
    (r'"size":\d+', '"size":…'),
    (r"Invalid value 5 for [^\n]*", "Invalid value 5"),
    # Of the benchmarks and verifying clients: how fast it was, and when.
    (r"\d+ records sent, [^\n]*", "… records sent"),
    (r"(?m)^\d{4}-\d\d-\d\d [^\n]*", "…"),
    (r"(?m)^0\t[\d.]+$|[\d.]+ ms$|\d+th = [\d,. a-z=]+$", "…"),
    (r'"timestamp":\d+', '"timestamp":…'),
)


def comparable(done: Done, broker: BrokerProcess) -> Done:
    """What the tool did, without what may differ."""

    def cleaned(text: str) -> str:
        text = text.replace(broker.bootstrap, "BROKER").replace(str(broker.folder), "FOLDER")
        text = re.sub(r"FOLDER/(logs|data)", "FOLDER", text)
        for pattern, replacement in NOT_COMPARED:
            text = re.sub(pattern, replacement, text)
        if text.startswith("Quota configs"):  # which Kafka takes from a hash map
            text = "\n".join(sorted(text.splitlines()))
        return text

    return Done(done.code, cleaned(done.out), cleaned(done.err))


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_tool_prints_the_same(both: Both, jvm: JavaTools, files: Path, scenario: str) -> None:
    kafka, ottla = both
    for command in filter(None, map(str.strip, SCENARIOS[scenario].splitlines())):
        expected = comparable(run(jvm, kafka, command, files), kafka)
        said = comparable(run(jvm, ottla, command, files), ottla)
        deadline = time.monotonic() + 120
        while said != expected and READS.search(command) and time.monotonic() < deadline:
            # Kafka's broker takes over what was changed some time after it has answered.
            expected = comparable(run(jvm, kafka, command, files), kafka)
        assert said == expected, command
        assert (said.code != 0) == command.startswith("!"), f"{command}: {said}"


def test_what_is_served_is_advertised_as_kafka_does(both: Both, jvm: JavaTools, files: Path) -> None:
    kafka, ottla = (
        re.findall(r"(\w+)\((\d+)\): ([^\n,]+)", run(jvm, broker, "kafka-broker-api-versions", files).out)
        for broker in both
    )
    # Telemetry of clients goes to a plugin in Kafka, and here to the HTTP port: neither broker has one.
    served = [api for api in kafka if int(api[1]) in served_apis() and api[2] != "UNSUPPORTED"]
    assert [api for api in ottla if api[2] != "UNSUPPORTED"] == served
    assert {name for name, key, versions in kafka if int(key) in served_apis() and versions == "UNSUPPORTED"} == {
        "GetTelemetrySubscriptions",
        "PushTelemetry",
    }


def test_versions_are_told_by_either_tool(both: Both, jvm: JavaTools, files: Path) -> None:
    """The older one is deprecated (KIP-1220)."""
    for broker in both:
        older, newer = (
            re.findall(r"(\w+)\((\d+)\): ([^\n,]+)", run(jvm, broker, command, files).out)
            for command in ("kafka-broker-api-versions", "kafka-cluster api-versions")
        )
        assert newer
        assert newer == older


def test_loggers_are_listed_with_their_levels(both: Both, jvm: JavaTools, files: Path) -> None:
    """Their names are each broker's own."""
    for broker in both:
        lines = run(jvm, broker, "kafka-configs --describe --broker-logger 1", files).out.splitlines()
        assert lines[0] == "Dynamic configs for broker-logger 1 are:"
        assert any(line.startswith("  root=") for line in lines)
        assert all(line.endswith(" sensitive=false synonyms={}") for line in lines[1:])
