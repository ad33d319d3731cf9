"""`KafkaContainer` with the face of testcontainers', without Docker: the same tests, with a broker in this process.

Of testcontainers' class it has what tests use: start and stop, the context manager, the address, environment variables
that set the broker's configuration. What concerns the image and Docker is accepted and has no meaning here.
"""

from __future__ import annotations

from types import TracebackType
from typing import Final

from ottla.testing.broker import Broker

_PREFIX: Final = "KAFKA_"
_OF_THE_IMAGE: Final = frozenset(
    {
        "advertised.listeners",
        "broker.id",
        "controller.listener.names",
        "controller.quorum.voters",
        "heap.opts",
        "inter.broker.listener.name",
        "jmx.opts",
        "jmx.port",
        "listener.security.protocol.map",
        "listeners",
        "log.dirs",
        "log4j.loggers",
        "log4j.root.loglevel",
        "node.id",
        "opts",
        "process.roles",
        "zookeeper.connect",
    }
)
"""Settings that say where a container listens and stores: a broker in this process has a port of its own."""


class KafkaContainer:
    """A broker that is started and stopped as a container is.

    `image` and `port` are accepted and not needed: there is no image, and the port is a free one. `with_env` takes the
    variables of Kafka's images, `KAFKA_AUTO_CREATE_TOPICS_ENABLE` for `auto.create.topics.enable`, and the broker
    refuses to start with one that it does not know.
    """

    def __init__(self, image: str = "", port: int = 9093, **_of_docker: object) -> None:
        self.image = image
        self.port = port
        self._settings: dict[str, object] = {}
        self._broker: Broker | None = None

    def __enter__(self) -> KafkaContainer:
        return self.start()

    def __exit__(
        self, _type: type[BaseException] | None, _value: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.stop()

    def with_kraft(self) -> KafkaContainer:
        """Accepted: there is no ZooKeeper anyway."""
        return self

    def with_cluster_id(self, cluster_id: str) -> KafkaContainer:
        """Accepted: the broker chooses an id for its cluster."""
        del cluster_id
        return self

    def with_env(self, key: str, value: object) -> KafkaContainer:
        """Set `KAFKA_LOG_RETENTION_MS` and the like; other variables are for the image and have no meaning here."""
        name = key.removeprefix(_PREFIX).lower().replace("___", "\0").replace("__", "\1").replace("_", ".")
        name = name.replace("\1", "_").replace("\0", "-")
        if key.startswith(_PREFIX) and name not in _OF_THE_IMAGE:
            self._settings[name] = value
        return self

    def with_exposed_ports(self, *ports: int) -> KafkaContainer:
        """Accepted: the port is a free one of this machine."""
        del ports
        return self

    def start(self, timeout: int = 30) -> KafkaContainer:
        """Start; returns when the broker serves. Raises BrokerError if it cannot. There is nothing to time out."""
        del timeout
        if self._broker is None:
            broker = Broker(config=self._settings)
            broker.__enter__()
            self._broker = broker
        return self

    def stop(self, force: bool = True, delete_volume: bool = True) -> None:
        """Stop, and forget what it held."""
        del force, delete_volume
        if self._broker is not None:
            self._broker.close()
            self._broker = None

    @property
    def broker(self) -> Broker:
        """What a container does not have: records, faults, the clock. Raises RuntimeError unless it was started."""
        if self._broker is None:
            raise RuntimeError("the container was not started")
        return self._broker

    def get_bootstrap_server(self) -> str:
        """What clients connect to."""
        return self.broker.bootstrap

    def get_container_host_ip(self) -> str:
        """The host that clients connect to."""
        return self.broker.bootstrap.rpartition(":")[0]

    def get_exposed_port(self, port: int = 9093) -> int:
        """The port that clients connect to, whatever it was said to be inside."""
        del port
        return self.broker.port
