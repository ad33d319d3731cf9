"""Checks of a start before it changes anything, and facts about the data folder's disk."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

import trio

from ottla.metadata import keys
from ottla.metadata.open_store import SQLITE_FILE
from ottla.metastore.errors import MetadataError
from ottla.runtime.errors import StartupError
from ottla.server.network.endpoints import advertised_endpoints, listen_addresses, parse_http_address
from ottla.server.network.http_ports import configured
from ottla.server.network.network import open_listening_socket
from ottla.server.wiring.optional import asks_for_anything, tls_of_http

if TYPE_CHECKING:
    from ottla.metadata.image import MetadataDelta
    from ottla.metastore.store import MetadataStore
    from ottla.server.broker import Broker
    from ottla.server.network.listener import ListenAddress
    from ottla.server.network.network import Network
    from ottla.settings.config import BrokerConfig
    from ottla.storage.disk import Disk
    from ottla.storage.node_dir import NodeDir

logger = logging.getLogger(__name__)


def check_ports(config: BrokerConfig) -> None:
    """Refuse settings of ports by which no start comes to listen; reads certificates and keytabs. ConfigError."""
    advertised_endpoints(config, listen_addresses(config))
    if asks_for_anything(config):
        from ottla.security.credentials import Credentials
        from ottla.server.network.listener_security import listener_auths

        listener_auths(config, Credentials(dict))
    if config.ottla_http_listen:
        parse_http_address(config.ottla_http_listen)
    ports = configured(config)
    for port in ports:
        port.address(config)
    if config.ottla_http_listen or ports:
        tls_of_http(config)


def try_addresses(config: BrokerConfig, addresses: list[ListenAddress], network: Network) -> None:
    """Refuse a first start that could not listen, before it leaves a folder behind. ConfigError or StartupError."""
    check_ports(config)
    backlog = config.socket_listen_backlog_size
    for address in addresses:
        network.listen(address.host, address.port, backlog, "--port").close()
    if config.ottla_http_listen:
        http = parse_http_address(config.ottla_http_listen)
        open_listening_socket(http.host, http.port, backlog, "--http").close()
    for port in configured(config):
        if (wanted := port.address(config)) is not None:
            open_listening_socket(wanted.host, wanted.port, backlog, port.flag).close()


def refuse_without_metadata(data_dir: str, node_path: str, disk: Disk) -> None:
    """StartupError if topics have data here and the file that knows the topics is not there. Blocks."""
    path = os.path.join(data_dir, SQLITE_FILE)
    if os.path.exists(path):
        return
    from ottla.storage.unknown_topics import unknown_folders

    topics = unknown_folders(disk, node_path, frozenset())
    if topics:
        raise StartupError(
            f"{path} is missing, and nothing else knows the {len(topics)} topics with data in {node_path}: "
            "restore it from a backup, or move the data away, or recreate it with "
            f"`ottla restore --metadata-from-data --data-dir {data_dir}`"
        )


async def refuse_other_cluster(node_dir: NodeDir, store: MetadataStore) -> None:
    """StartupError before anything is changed, if the folder's topics are another cluster's than the metadata's.

    As Kafka's BrokerMetadataCheckpoint and its InconsistentClusterIdException.
    """
    if node_dir.cluster_id is None:
        return
    entry = await store.get(keys.CLUSTER_ID)
    found = None if entry is None else keys.decode(entry.value)
    if found != node_dir.cluster_id:
        raise StartupError(
            f"{node_dir.path} belongs to the cluster {node_dir.cluster_id}, and the metadata is that of "
            f"{found or 'a new one'}: start it with the metadata of its own cluster, or empty the folder"
        )


async def compare_with_folders(broker: Broker, store: MetadataStore) -> None:
    """Say it where topics have data here that the metadata does not know: it may be old, or another cluster's."""
    from ottla.storage.unknown_topics import unknown_folders

    known = {topic.topic_id for topic in broker.metadata.topics.values()}
    node_path = broker.log_manager.node_dir.path
    unknown = await trio.to_thread.run_sync(unknown_folders, broker.log_manager.context.disk, node_path, known)
    if unknown:
        # The folder of a topic that is being created is there before the image shows the topic.
        try:
            made = {keys.decode_topic(entry.value)[0] for entry in (await store.list(keys.TOPICS)).entries}
        except MetadataError:
            return
        unknown = [each for each in unknown if each.topic_id not in made]
    if unknown:
        logger.error(
            "%d topics have data in %s and are not in the cluster's metadata, such as %s: was it lost, or is it old? "
            "`ottla fsck --delete-unknown` names them",
            len(unknown),
            node_path,
            os.path.basename(unknown[0].path),
            extra={"path": node_path},
        )


async def require_object_store(delta: MetadataDelta, *, config: BrokerConfig) -> None:
    """Refuse to start, as Kafka does, where there are tiered topics and no object store is named: their older records
    would seem to be deleted. Only what is there at the start is looked at. StartupError.
    """
    if delta.before.cluster_id:
        return
    for topic in delta.created_topics:
        if "remote.storage.enable" in topic.configs and config.topic_config(topic.configs).remote_storage_enable:
            raise StartupError(
                f"the topic {topic.name} is tiered and ottla.remote.url is not set: You have to delete all topics with "
                "the property remote.storage.enable=true before disabling tiered storage cluster-wide"
            )
