"""Brokers among each other on listeners that ask for a certificate or a password."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("cryptography")

from ottla.client.errors import ClientError, SecurityConfigError
from ottla.kproto.messages.describe_cluster import DescribeClusterRequest
from ottla.server.security.certificates import issue, make_authority
from tests.clusters import RunCluster

pytestmark = pytest.mark.timeout(60)

JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="b" password="p" user_b="p";'
SASL = {
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.internal.plain.sasl.jaas.config": JAAS,
}


def listeners(protocol: str) -> dict[str, str]:
    return {
        "listeners": "PLAINTEXT://127.0.0.1:0,INTERNAL://127.0.0.1:0",
        "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,INTERNAL:{protocol}",
        "inter.broker.listener.name": "INTERNAL",
    }


def certificates(folder: Path) -> dict[str, str]:
    """One for all, that each shows and all trust."""
    authority = make_authority("Test CA")
    (folder / "ca.pem").write_bytes(authority.certificate)
    (folder / "node.pem").write_bytes(b"".join(issue(authority, "CN=broker", ["127.0.0.1"], 1)))
    return {
        "ssl.truststore.location": str(folder / "ca.pem"),
        "listener.name.internal.ssl.keystore.location": str(folder / "node.pem"),
    }


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SSL", "SASL_SSL"])
async def test_brokers_reach_each_other(run_cluster: RunCluster, tmp_path: Path, protocol: str) -> None:
    settings = listeners(protocol)
    if "SASL" in protocol:
        settings |= SASL
    if "SSL" in protocol:
        settings |= certificates(tmp_path) | {"listener.name.internal.ssl.client.auth": "required"}
    async with run_cluster(2, settings) as cluster:
        answer = await cluster[1].broker.peers.call(2, DescribeClusterRequest())
        assert [it.broker_id for it in answer.brokers] == [1, 2]
        there = cluster[2].broker.listeners
        assert there is not None
        assert there.open_by_listener()["INTERNAL"] >= 1
        assert there.open_by_listener().get("PLAINTEXT", 0) == 0


async def test_who_has_the_wrong_password_or_none_is_not_let_in(run_cluster: RunCluster) -> None:
    async with run_cluster(2, listeners("SASL_PLAINTEXT") | SASL) as cluster:
        wrong = JAAS.replace('password="p"', 'password="q"')
        third = await cluster.start(3, listener_name_internal_plain_sasl_jaas_config=wrong)
        with pytest.raises(ClientError):
            await third.broker.peers.call(2, DescribeClusterRequest())
        await cluster.stop(3)
        third = await cluster.start(3, sasl_mechanism_inter_broker_protocol="GSSAPI")
        with pytest.raises(SecurityConfigError, match=r"sasl\.mechanism is GSSAPI"):
            await third.broker.peers.call(2, DescribeClusterRequest())
