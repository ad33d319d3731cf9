"""A broker that passes for an earlier release of Apache Kafka."""

from __future__ import annotations

from contextlib import closing
from itertools import pairwise
from typing import Any

import pytest

from ottla.client.connection import BrokerConnection
from ottla.client.errors import UnsupportedVersionError
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.messages.cluster.api_versions import ApiVersionsRequest
from ottla.kproto.messages.topics.create_topics import CreateTopicsRequest
from ottla.kproto.releases import RELEASES, features, latest_versions
from ottla.server.apis.table import ApiTable, served
from ottla.testing import Broker, BrokerError


def versions(broker: Broker) -> Any:
    with closing(BrokerConnection("127.0.0.1", broker.port, 30)) as connection:
        return connection.call(ApiVersionsRequest(client_software_name="x", client_software_version="1"))


def test_the_newest_release_is_what_the_messages_declare() -> None:
    newest = latest_versions(RELEASES[-1])
    assert {key: newest[key] for key in served()} == {key: key.valid_versions[1] for key in served()}


def test_no_release_takes_anything_back() -> None:
    for before, after in pairwise(RELEASES):
        earlier, later = latest_versions(before), latest_versions(after)
        assert all(later[key] >= version for key, version in earlier.items()), after


@pytest.mark.parametrize("release", ["1.1", "4", "4.4.0", ""])
def test_an_unknown_release_is_refused(release: str) -> None:
    for look in (latest_versions, features):
        with pytest.raises(KeyError):
            look(release)
    with pytest.raises(BrokerError, match=r"ottla\.kafka\.release"), Broker(max_versions=release):
        raise AssertionError


def test_every_release_serves_what_a_client_needs() -> None:
    needed = {ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.METADATA, ApiKey.JOIN_GROUP, ApiKey.OFFSET_COMMIT}
    for release in RELEASES:
        assert needed <= {api.key for api in ApiTable.default(release=release)}, release


def test_what_is_announced_is_that_release() -> None:
    with Broker(max_versions="3.7") as broker:
        answer = versions(broker)
        announced = {entry.api_key: entry.max_version for entry in answer.api_keys}
        assert (announced[ApiKey.PRODUCE], announced[ApiKey.FETCH], announced[ApiKey.METADATA]) == (10, 16, 12)
        assert ApiKey.CONSUMER_GROUP_HEARTBEAT not in announced
        assert {entry.name: entry.max_version_level for entry in answer.finalized_features} == {"metadata.version": 19}
        assert {entry.name: entry.max_version for entry in answer.supported_features} == {"metadata.version": 19}
    with Broker(max_versions="2.8") as broker:
        assert versions(broker).finalized_features == []


def test_what_is_later_is_not_served() -> None:
    with Broker(max_versions="2.8") as broker:
        broker.produce("t", 1, 2)
        assert len(broker.records("t")) == 2
        with closing(BrokerConnection("127.0.0.1", broker.port, 30)) as connection:
            assert connection.version(ApiKey.CREATE_TOPICS) == CreateTopicsRequest.API_KEY.valid_versions[1] == 7
            assert connection.version(ApiKey.PRODUCE) == 9
            with pytest.raises(UnsupportedVersionError):
                connection.version(ApiKey.CONSUMER_GROUP_HEARTBEAT)
