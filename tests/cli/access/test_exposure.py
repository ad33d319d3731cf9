"""What a start warns of: ports on which everybody may do everything."""

from __future__ import annotations

import pytest

from ottla.cli.access.exposure import exposed_console, exposed_ports
from ottla.settings.config import BrokerConfig

OPEN = {
    "ottla.http.listen": "0.0.0.0:8080",
    "ottla.console.enable": "true",
    "ottla.registry.listeners": "0.0.0.0:8081",
    "ottla.rest.listeners": "127.0.0.1:8082",
}
SSL = {"ottla.http.security.protocol": "SSL", "listener.name.http.ssl.keystore.location": "a.pem"}
CERTIFICATES = {"listener.name.http.ssl.client.auth": "required"}


@pytest.mark.parametrize(
    ("settings", "is_exposed"),
    [
        ({}, True),
        (SSL, True),
        (SSL | {"listener.name.http.ssl.client.auth": "requested"}, True),
        (SSL | CERTIFICATES, False),
        (CERTIFICATES, True),
        ({"ottla.http.security.protocol": "SASL_SSL"}, False),
        ({"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}, False),
    ],
)
def test_the_console_and_the_registry_are_exposed(settings: dict[str, str], is_exposed: bool) -> None:
    config = BrokerConfig(OPEN | settings)
    expected = ["0.0.0.0:8080 (the web console)", "0.0.0.0:8081 (the schema registry)"] if is_exposed else []
    assert exposed_console(config) + exposed_ports(config) == expected
