"""Which schema registry a command asks: the one that is named, else the one inside the broker."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from ottla.cli import CommandError
from ottla.client.schema_registry import Registry, RegistryError, RegistryLogin
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.configs.describe_configs import DescribeConfigsRequest, DescribeConfigsResource

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from ottla.client.client import Client

_BROKER: Final = 4
_LISTENERS: Final = "ottla.registry.listeners"
_PROTOCOL: Final = "ottla.http.security.protocol"
_EVERYWHERE: Final = ("", "0.0.0.0", "::", "[::]")
_NAME_ONE: Final = "name one with --registry"


def open_registry(arguments: argparse.Namespace, client: Client) -> Registry:
    """The registry of `--registry`, of the client's properties, or of the broker. CommandError if there is none."""
    properties = _properties(arguments)
    url, protocol = arguments.registry or properties.get("schema.registry.url"), ""
    if url is None:
        url, protocol = own_registry(client)
    try:
        return Registry(url, _login(properties, protocol))
    except RegistryError as error:
        raise CommandError(str(error)) from None


def _properties(arguments: argparse.Namespace) -> Mapping[str, str]:
    path = arguments.command_config or os.environ.get("OTTLA_COMMAND_CONFIG")
    if not path:
        return {}
    from ottla.client.security import read_properties

    return read_properties(path)


def own_registry(client: Client) -> tuple[str, str]:
    """The address of the registry in the cluster, and its security protocol: of the first broker that serves one.

    CommandError if none does.
    """
    for broker in client.metadata([]).brokers:
        resource = DescribeConfigsResource(
            resource_type=_BROKER, resource_name=str(broker.node_id), configuration_keys=[_LISTENERS, _PROTOCOL]
        )
        (result,) = client.broker(broker.node_id).call(DescribeConfigsRequest(resources=[resource])).results
        if result.error_code != ErrorCode.NONE:
            raise CommandError(f"the broker does not say where its schema registry is: {_NAME_ONE}")
        told = {config.name: config.value for config in result.configs}
        host, _, port = (told.get(_LISTENERS) or "").rpartition(":")
        if port == "0":
            raise CommandError(f"the broker's schema registry is on a port that was free: {_NAME_ONE}")
        if port:
            protocol = told.get(_PROTOCOL) or ""
            scheme = "https" if protocol.endswith("SSL") else "http"
            return f"{scheme}://{broker.host if host in _EVERYWHERE else host}:{port}", protocol
    raise CommandError(f"the broker has no schema registry: start it with --registry, or {_NAME_ONE}")


def _login(properties: Mapping[str, str], own_protocol: str) -> RegistryLogin | None:
    """Confluent's settings. Without them the broker's own registry is given the Kafka user, whom it knows, and no other
    registry is: nor any over a connection that anybody can read, where that to Kafka is encrypted.
    """
    user = properties.get("basic.auth.user.info") or properties.get("schema.registry.basic.auth.user.info")
    token = properties.get("bearer.auth.token")
    if user is None and token is None and own_protocol.startswith("SASL_"):
        from ottla.client.security import from_properties

        login, encryption = from_properties(properties)
        if login is not None and login.user and not login.is_token:
            if encryption is not None and not own_protocol.endswith("SSL"):
                raise CommandError(
                    "the broker's schema registry is not encrypted (ottla.http.security.protocol), and is not sent the "
                    "password that goes to the broker encrypted: give basic.auth.user.info"
                )
            user = f"{login.user}:{login.password}"
    authorities = properties.get("schema.registry.ssl.truststore.location") or properties.get("ssl.ca.location")
    if authorities is None and properties.get("ssl.truststore.type", "").upper() == "PEM":
        authorities = properties.get("ssl.truststore.location")
    if user is None and token is None and authorities is None:
        return None
    return RegistryLogin(user_info=user, token=token, ca_file=authorities)
