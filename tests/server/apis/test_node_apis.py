"""ApiVersions, FindCoordinator and InitProducerId of a whole node, as Apache Kafka 4.3.1 was seen to answer."""

import struct
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from ottla.kproto import codec, headers
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages import request_class
from ottla.kproto.messages.cluster.add_raft_voter import AddRaftVoterRequest, Listener
from ottla.kproto.messages.cluster.api_versions import ApiVersionsRequest
from ottla.kproto.messages.cluster.remove_raft_voter import RemoveRaftVoterRequest
from ottla.kproto.messages.groups.find_coordinator import FindCoordinatorRequest
from ottla.kproto.messages.topics.metadata import MetadataRequest
from ottla.kproto.messages.transactions.init_producer_id import InitProducerIdRequest
from ottla.metadata.changes.config_changes import ConfigChange, ConfigOperation
from ottla.metadata.image import ConfigResource, ResourceType
from ottla.server.apis.not_served import NOT_SERVED

Serve = Callable[..., Any]

SHARE_KEY = "g:AAAAAAAAAAAAAAAAAAAAAQ:0"


async def test_api_versions_lists_what_is_served_and_nothing_else(serve_node: Serve) -> None:
    async with serve_node() as node:
        client = await node.connect()
        listed = []
        for version in range(6):
            request = ApiVersionsRequest(client_software_name="test", client_software_version="1.0")
            response = await client.call(request, version)
            assert response.error_code == ErrorCode.NONE
            listed.append([(api.api_key, api.min_version, api.max_version) for api in response.api_keys])
        assert all(each == listed[0] for each in listed)
        keys = [key for key, _, _ in listed[0]]
        assert keys == sorted(keys)
        assert {api.key for api in node.broker.apis} == set(keys)
        assert (ApiKey.PRODUCE, 0, 13) in listed[0]
        assert not {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY} & set(keys)
        for key, lowest, highest in listed[0]:
            if key != ApiKey.PRODUCE:
                valid = ApiKey(key).valid_versions
                assert (lowest, highest) == (valid.lowest, valid.highest)


@pytest.mark.parametrize(
    ("is_own_cluster", "is_own_node", "code"),
    [
        (True, True, ErrorCode.NONE),
        (None, None, ErrorCode.NONE),
        (False, True, ErrorCode.REBOOTSTRAP_REQUIRED),
        (True, False, ErrorCode.REBOOTSTRAP_REQUIRED),
        (None, True, ErrorCode.INVALID_REQUEST),
        (True, None, ErrorCode.INVALID_REQUEST),
    ],
)
async def test_a_client_that_takes_the_node_for_another_asks_its_bootstrap_servers_again(
    serve_node: Serve, is_own_cluster: bool | None, is_own_node: bool | None, code: ErrorCode
) -> None:
    async with serve_node() as node:
        own = node.broker.metadata.cluster_id
        request = ApiVersionsRequest(
            client_software_name="test",
            client_software_version="1.0",
            cluster_id=None if is_own_cluster is None else own if is_own_cluster else "another",
            node_id=-1 if is_own_node is None else node.broker.node_id if is_own_node else 4711,
        )
        answer = await (await node.connect()).call(request, 5)
        assert answer.error_code == code
        assert bool(answer.api_keys) == (code is ErrorCode.NONE)


async def test_every_served_api_has_a_handler(serve_node: Serve) -> None:
    async with serve_node() as node:
        for api in node.broker.apis:
            api.load(api.max_version)
            assert callable(api.handler)


async def test_features_with_a_least_version_of_0_are_not_shown_before_version_4(serve_node: Serve) -> None:
    async with serve_node() as node:
        client = await node.connect()
        request = ApiVersionsRequest(client_software_name="test", client_software_version="1.0")
        for version in (3, 4):
            response = await client.call(request, version)
            supported = {f.name: (f.min_version, f.max_version) for f in response.supported_features}
            assert supported["metadata.version"] == (7, 33)
            assert ("group.version" in supported) == (version == 4)
            finalized = {f.name: f.max_version_level for f in response.finalized_features}
            assert finalized["metadata.version"] == 33
            assert finalized["group.version"] == 1
            assert response.finalized_features_epoch > 0


@pytest.mark.parametrize(("name", "release"), [("", "1"), ("a b", "1"), ("a", ""), ("-a", "1"), ("a", "1-")])
async def test_a_client_must_name_its_software(serve_node: Serve, name: str, release: str) -> None:
    async with serve_node() as node:
        client = await node.connect()
        request = ApiVersionsRequest(client_software_name=name, client_software_version=release)
        assert (await client.call(request, 3)).error_code == ErrorCode.INVALID_REQUEST


async def test_the_response_header_of_api_versions_is_always_version_0(serve_node: Serve) -> None:
    async with serve_node() as node:
        client = await node.connect()
        await client.send(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 4)
        frame = await client.receive_frame()
        assert struct.unpack_from(">i", frame) == (1,)
        assert codec.parse_response(ApiKey.API_VERSIONS, 4, frame, 4)


async def test_bytes_behind_a_body_are_ignored(serve_node: Serve) -> None:
    async with serve_node() as node:
        client = await node.connect()
        for version in (1, 12):
            body = headers.build_request_header(ApiKey.METADATA, version, 7, None)
            await client.send_frame(body + codec.build(MetadataRequest(topics=[]), version) + b"garbage")
            correlation_id, response = await client.receive(ApiKey.METADATA, version)
            assert (correlation_id, len(response.brokers)) == (7, 1)


@pytest.mark.parametrize("version", range(4))
async def test_find_coordinator_of_one_key(serve_node: Serve, version: int) -> None:
    async with serve_node({"offsets.topic.num.partitions": "3"}) as node:
        client = await node.connect()
        found = await client.call(FindCoordinatorRequest(key="group"), version)
        assert (found.error_code, found.node_id, found.host, found.port) == (0, 1, "127.0.0.1", node.port)
        assert found.error_message == ("NONE" if version else "")
        topic = node.broker.metadata.topic("__consumer_offsets")
        assert len(topic.partitions) == 3
        assert topic.configs["cleanup.policy"] == "compact"


@pytest.mark.parametrize("version", range(4, 7))
async def test_find_coordinator_of_several_keys(serve_node: Serve, version: int) -> None:
    async with serve_node({"offsets.topic.num.partitions": "3"}) as node:
        client = await node.connect()
        found = await client.call(FindCoordinatorRequest(coordinator_keys=["a", "b", ""]), version)
        assert [c.key for c in found.coordinators] == ["a", "b", ""]
        assert {(c.error_code, c.error_message, c.node_id, c.port) for c in found.coordinators} == {
            (0, "", 1, node.port)
        }


@pytest.mark.parametrize(
    ("key", "key_type", "version"),
    [("g", 9, 4), ("g", 2, 6), (SHARE_KEY, 2, 5), ("g::0", 2, 6), ("g:id:x", 2, 6)],
)
async def test_a_wrong_kind_of_coordinator(serve_node: Serve, key: str, key_type: int, version: int) -> None:
    async with serve_node() as node:
        client = await node.connect()
        request = FindCoordinatorRequest(coordinator_keys=[key], key_type=key_type)
        (found,) = (await client.call(request, version)).coordinators
        assert (found.error_code, found.node_id, found.host, found.port) == (ErrorCode.INVALID_REQUEST, -1, "", -1)
        assert list(node.broker.metadata.topics) == []


@pytest.mark.parametrize("version", range(6))
async def test_every_idempotent_producer_gets_an_id_of_its_own(serve_node: Serve, version: int) -> None:
    async with serve_node() as node:
        client = await node.connect()
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
        answers = [await client.call(request, version) for _ in range(5)]
        assert {(a.error_code, a.producer_epoch) for a in answers} == {(0, 0)}
        assert len({a.producer_id for a in answers}) == 5


async def test_producer_ids_are_never_given_twice(serve_node: Serve) -> None:
    given: list[int] = []
    for _ in range(3):  # a restart, and more than one block
        async with serve_node() as node:
            client = await node.connect()
            for _ in range(1_500):
                given.append((await client.call(InitProducerIdRequest(transactional_id=None), 1)).producer_id)
    assert len(set(given)) == len(given)


async def test_an_epoch_bump_without_a_transactional_id_is_a_new_producer(serve_node: Serve) -> None:
    async with serve_node() as node:
        client = await node.connect()
        request = InitProducerIdRequest(transactional_id=None, producer_id=5, producer_epoch=3)
        answer = await client.call(request, 3)
        assert (answer.error_code, answer.producer_epoch) == (0, 0)


@pytest.mark.parametrize(("producer_id", "epoch", "transactional_id"), [(5, -1, None), (-1, 5, None), (-1, -1, "")])
async def test_init_producer_id_that_contradicts_itself(
    serve_node: Serve, producer_id: int, epoch: int, transactional_id: str | None
) -> None:
    async with serve_node() as node:
        client = await node.connect()
        request = InitProducerIdRequest(
            transactional_id=transactional_id, producer_id=producer_id, producer_epoch=epoch
        )
        answer = await client.call(request, 3)
        assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (ErrorCode.INVALID_REQUEST, -1, -1)


async def test_every_api_key_of_kafka_is_served_as_the_table_says_or_refused(serve_node: Serve) -> None:
    """As in docs/compatibility.md, which is made of the same tables."""
    async with serve_node({"ottla.http.listen": "127.0.0.1:0"}) as node:
        # Client metrics are offered while somebody is asked for some.
        asking = {ConfigResource(ResourceType.CLIENT_METRICS, "s"): [ConfigChange("metrics", ConfigOperation.SET, "*")]}
        assert not any((await node.broker.controller.alter_configs(asking)).values())
        client = await node.connect()
        request = ApiVersionsRequest(client_software_name="test", client_software_version="1.0")
        listed = {api.api_key for api in (await client.call(request, 4)).api_keys}
        assert listed.isdisjoint(NOT_SERVED)
        assert listed | NOT_SERVED.keys() == set(ApiKey)
        for key in NOT_SERVED:
            refused = await node.connect()
            await refused.send(request_class(key)(), key.valid_versions.highest)
            assert await refused.is_closed()


async def test_voters_are_refused_in_kafkas_words(serve_node: Serve) -> None:
    async with serve_node() as node:
        client = await node.connect()
        own = node.broker.metadata.cluster_id
        directory = UUID(int=7)
        refused = [
            await client.call(AddRaftVoterRequest(cluster_id="x", voter_id=3, voter_directory_id=directory), 1),
            await client.call(AddRaftVoterRequest(cluster_id=own, voter_id=-1, voter_directory_id=directory), 0),
            await client.call(AddRaftVoterRequest(cluster_id=None, voter_id=3, voter_directory_id=directory), 1),
            *[
                await client.call(
                    AddRaftVoterRequest(
                        cluster_id=None, voter_id=3, voter_directory_id=directory, listeners=[Listener(name=name)]
                    ),
                    1,
                )
                for name in ("other", "controller")
            ],
            await client.call(RemoveRaftVoterRequest(cluster_id=own, voter_id=3, voter_directory_id=directory), 0),
        ]
        assert [(each.error_code, each.error_message) for each in refused] == [
            (ErrorCode.INCONSISTENT_CLUSTER_ID, f'The given id "x" doesn\'t match the cluster id "{own}"'),
            (ErrorCode.INVALID_REQUEST, "Add voter request didn't include a valid voter"),
            (
                ErrorCode.INVALID_REQUEST,
                "Add voter request didn't include the endpoint (Endpoints(endpoints={})) for the default listener "
                "ListenerName(CONTROLLER)",
            ),
            (
                ErrorCode.INVALID_REQUEST,
                "Add voter request didn't include the endpoint (Endpoints(endpoints={ListenerName(OTHER)})) for the "
                "default listener ListenerName(CONTROLLER)",
            ),
            (
                ErrorCode.UNSUPPORTED_VERSION,
                "Cluster doesn't support adding voter because the kraft.version feature is 0",
            ),
            (
                ErrorCode.UNSUPPORTED_VERSION,
                "Cluster doesn't support removing voter because the kraft.version feature is 0",
            ),
        ]
