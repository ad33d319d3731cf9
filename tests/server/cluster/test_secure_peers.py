"""Brokers among each other on listeners that ask for a certificate or a password."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import trio

pytest.importorskip("cryptography")

from ottla.client.errors import ClientError, SecurityConfigError, UnreachableError
from ottla.kproto.messages.cluster.describe_cluster import DescribeClusterRequest
from ottla.security.certificates import issue, make_authority
from tests.clusters import RunCluster
from tests.servers import RunningNode

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


async def reaches(node: RunningNode, other: int) -> bool:
    """Whether it does by now: who was refused pauses before he tries again."""
    try:
        return bool((await node.broker.peers.call(other, DescribeClusterRequest())).brokers)
    except UnreachableError:
        return False


async def test_brokers_show_tokens_that_an_issuer_has_signed(run_cluster: RunCluster, tmp_path: Path) -> None:
    """Out of a file, which is read for each session: with the token that is in it then, a broker comes back."""
    pytest.importorskip("joserfc")
    from joserfc import jwt
    from joserfc.jwk import ECKey

    key = ECKey.generate_key("P-256", {"kid": "1"})
    (tmp_path / "keys.json").write_text(json.dumps({"keys": [key.as_dict(private=False)]}))

    def renew(**changes: Any) -> None:
        now = int(time.time())
        claims = {"sub": "broker", "iat": now, "exp": now + 600, **changes}
        (tmp_path / "token").write_text(jwt.encode({"alg": "ES256", "kid": "1"}, claims, key))

    mechanism = "listener.name.internal.oauthbearer.sasl.oauthbearer"
    settings = listeners("SASL_PLAINTEXT") | {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
        f"{mechanism}.jwks.endpoint.url": (tmp_path / "keys.json").as_uri(),
        f"{mechanism}.allow.unverified.audience": "true",
        f"{mechanism}.allow.unverified.issuer": "true",
        f"{mechanism}.token.endpoint.url": (tmp_path / "token").as_uri(),
    }
    renew()
    async with run_cluster(2, settings) as cluster:
        assert (await cluster[1].broker.peers.call(2, DescribeClusterRequest())).brokers
        renew(exp=1)
        third = await cluster.start(3)
        with pytest.raises(ClientError):
            await third.broker.peers.call(2, DescribeClusterRequest())
        renew()
        for pause in (0.01 * attempt for attempt in range(100)):
            if await reaches(third, 2):
                break
            await trio.sleep(pause)
        else:
            pytest.fail("it does not come back")
