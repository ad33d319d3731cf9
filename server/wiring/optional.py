"""Parts that a node has only where its configuration asks for them: nothing of the others is imported."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.server.cluster.peers import PeerEndpoint
from ottla.server.network.endpoints import HTTP_LISTENER, listener_protocols, parse_http_address
from ottla.server.network.http_ports import configured

if TYPE_CHECKING:
    from ottla.coordinator.share.cluster import OtherShareCoordinators
    from ottla.coordinator.transaction.other_brokers import OtherBrokers
    from ottla.metadata.controller import Controller
    from ottla.metadata.image import Endpoint
    from ottla.metastore.store import MetadataStore
    from ottla.replica.remote.remote_storage import RemoteStorage
    from ottla.security.credentials import Credentials
    from ottla.security.delegation_tokens import DelegationTokens
    from ottla.security.tls import ReloadedTls
    from ottla.server.broker import Broker
    from ottla.server.cluster.peers import Peers
    from ottla.server.http.mounted import MountedServer
    from ottla.server.http.server import HttpServer
    from ottla.server.mirror.link import Link
    from ottla.server.mirror.progress import MirrorProgress
    from ottla.server.network.listener import Listeners
    from ottla.server.network.listener_security import ListenerSecurity
    from ottla.server.network.network import Network
    from ottla.server.schemas.source import SchemaSource
    from ottla.server.snapshots.snapshots import Snapshots
    from ottla.settings.config import BrokerConfig
    from ottla.storage.clock import Clock
    from ottla.storage.disk import Disk
    from ottla.storage.node_dir import NodeDir
    from ottla.tiers.object_store import ObjectStore

logger = logging.getLogger(__name__)

_CONSOLE: Final = "ottla.console.routes"
"""The web console builds on the server, which imports nothing of it: it is loaded by its name, and only if it is
enabled.
"""


def asks_for_anything(config: BrokerConfig) -> bool:
    return any(protocol != "PLAINTEXT" for protocol in listener_protocols(config).values())


def delegation_tokens(config: BrokerConfig, controller: Controller, clock: Clock) -> DelegationTokens | None:
    """None where there are none, and then nothing of them is loaded."""
    if not config.delegation_token_secret_key:
        return None
    from ottla.security.delegation_tokens import DelegationTokens

    return DelegationTokens(config.delegation_token_secret_key, config, controller, clock)


def credentials(
    config: BrokerConfig, controller: Controller, clock: Clock, tokens: DelegationTokens | None
) -> Credentials | None:
    """The credentials of users; None where no port authenticates, and then their modules are not loaded."""
    if not (
        asks_for_anything(config) or ((config.ottla_http_listen or configured(config)) and _http_asks_for_login(config))
    ):
        return None
    from ottla.security.credentials import Credentials

    return Credentials(lambda: controller.image.scram_credentials, clock, tokens)


def listener_security(
    config: BrokerConfig, credentials: Credentials | None, listeners: Listeners
) -> ListenerSecurity | None:
    """TLS and SASL of the listeners; None where no listener uses them, and then their modules are not loaded. Raises
    ConfigError.
    """
    if not asks_for_anything(config):
        return None
    from ottla.server.network.listener_security import ListenerSecurity

    assert credentials is not None, "a listener that authenticates has credentials to check"
    return ListenerSecurity(config, credentials, listeners)


def peer_endpoint(config: BrokerConfig, network: Network, endpoint: Endpoint) -> PeerEndpoint:
    """How another broker is reached; what encrypts and logs in is loaded only where it is needed."""
    if endpoint.security_protocol == "PLAINTEXT":
        return PeerEndpoint(partial(network.connect, endpoint.host, endpoint.port))
    from ottla.security import between_brokers

    return PeerEndpoint(between_brokers.open_stream(config, endpoint), between_brokers.login(config, endpoint))


def other_brokers(peers: Peers) -> OtherBrokers:
    from ottla.server.apis.other_brokers import PeerBrokers

    return PeerBrokers(peers)


def other_share_coordinators(peers: Peers) -> OtherShareCoordinators:
    from ottla.server.apis.other_share_coordinators import PeerShareCoordinators

    return PeerShareCoordinators(peers)


def new_link(broker: Broker) -> tuple[Link, MirrorProgress]:
    from ottla.server.mirror.link import Link
    from ottla.server.mirror.progress import MirrorProgress

    progress = MirrorProgress()
    link = Link(
        broker.controller,
        broker.replica_manager,
        broker.coordinators,
        broker.producer_ids,
        broker.peers,
        broker.config,
        broker.clock,
        progress,
    )
    return link, progress


def http_server(config: BrokerConfig, page_socket: str | None) -> HttpServer | None:
    if not config.ottla_http_listen:
        return None
    from ottla.server.http.server import HttpServer

    console = _CONSOLE if config.ottla_console_enable else None
    if console is not None and config.authorizer_class_name and not _http_asks_for_login(config):
        logger.warning(
            "the web console requires no login, so everybody may do what ACLs allow User:ANONYMOUS: set "
            "ottla.http.security.protocol=SASL_SSL"
        )
    return HttpServer(parse_http_address(config.ottla_http_listen), console, tls_of_http(config), page_socket)


def remote_storage(
    config: BrokerConfig, disk: Disk, clock: Clock, node_dir: NodeDir, object_store: ObjectStore | None
) -> RemoteStorage | None:
    """The object store for tiered topics; None where none is named, and then nothing of it is loaded. Raises
    ConfigError.
    """
    url = config.ottla_remote_url
    if not url:
        return None
    from ottla.replica.remote.open_storage import open_remote_storage
    from ottla.settings.config import ConfigError
    from ottla.tiers.errors import ObjectStoreRefusedError

    try:
        return open_remote_storage(url, config, disk, clock, node_dir, store=object_store)
    except (ValueError, ObjectStoreRefusedError) as error:
        raise ConfigError(f"ottla.remote.url: {error}") from None
    except ModuleNotFoundError as error:
        raise ConfigError(f"ottla.remote.url: {url} needs {error.name}: pip install 'ottla[tiers]'") from None


def snapshots(broker: Broker, store: MetadataStore) -> Snapshots | None:
    """What copies metadata to the object store; None where there is none."""
    if broker.remote_storage is None:
        return None
    from ottla.server.snapshots.snapshots import Snapshots

    return Snapshots(
        broker.remote_storage,
        broker.controller,
        store,
        broker.replica_manager,
        broker,
        broker.clock,
        interval_ms=broker.config.ottla_remote_snapshot_interval_ms,
    )


def schema_source(config: BrokerConfig) -> SchemaSource | None:
    """The schema registry that is named; None where none is. Raises ConfigError."""
    url = config.ottla_schema_registry_url
    if not url:
        return None
    from ottla.client.schema_registry import RegistryError
    from ottla.server.schemas.registry_address import RegistryAtAddress
    from ottla.settings.config import ConfigError

    try:
        return RegistryAtAddress(url)
    except RegistryError as error:
        raise ConfigError(f"ottla.schema.registry.url: {error}") from None


def mounted_servers(config: BrokerConfig) -> list[MountedServer]:
    """The ports of the schema registry and the REST proxy; where there is none, nothing of it is loaded."""
    ports = configured(config)
    if not ports:
        return []
    from ottla.security.listener_auth import principal_rules
    from ottla.server.http.mounted import MountedServer

    principal_rules(config, HTTP_LISTENER)
    servers: list[MountedServer] = []
    try:
        for port in ports:
            if config.authorizer_class_name and not _knows_visitors(config):
                logger.warning(
                    "the %s requires no login, so everybody may do what ACLs allow User:ANONYMOUS: set "
                    "ottla.http.security.protocol=SASL_SSL",
                    port.what,
                )
            address = port.address(config)
            assert address is not None, "it is configured"
            servers.append(MountedServer(port, address, tls_of_http(config)))
    except BaseException:
        for server in servers:
            server.close()
        raise
    return servers


def _http_asks_for_login(config: BrokerConfig) -> bool:
    return config.ottla_http_security_protocol.startswith("SASL_")


def _knows_visitors(config: BrokerConfig) -> bool:
    """Whether the registry and the REST proxy know who asks: by a login, or by a certificate."""
    from ottla.security.tls import client_auth

    protocol = config.ottla_http_security_protocol
    is_certified = protocol == "SSL" and client_auth(config, HTTP_LISTENER, protocol) == "required"
    return is_certified or _http_asks_for_login(config)


def tls_of_http(config: BrokerConfig) -> ReloadedTls | None:
    """The certificate of the HTTP port; None in plain text. Reads files, and raises ConfigError."""
    protocol = config.ottla_http_security_protocol
    if not protocol.endswith("SSL"):
        return None
    from ottla.security.tls import ReloadedTls

    return ReloadedTls(config, HTTP_LISTENER, protocol)
