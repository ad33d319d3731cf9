"""The brokers and clients that the scenarios run on.

`--broker=ottla` (the default), `kafka` (Apache Kafka, the oracle) or `both`; `ottla3` and `kafka3` are three nodes of
each, and `ottla3-etcd` those of Ottla with their metadata in etcd. With `-proxy` behind it, each of the first four
stands behind `ottla proxy` (three nodes without the scenarios by `wire`); `ottla-tenants-proxy` has its tenants'
filter, `ottla-filters-proxy` all that look at records, and those with `-cache-proxy` keep what is fetched. All
scenarios of a run share one broker of each kind and use topics of their own; a scenario that stops its broker starts
one for itself with `own_broker`.
"""

from __future__ import annotations

import gc
import itertools
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from compat_tests import java
from compat_tests.brokers.apache_kafka import ApacheKafka, ApacheKafkaCluster
from compat_tests.brokers.ottla_broker import OttlaBroker, OttlaCluster, OttlaOnEtcd
from compat_tests.brokers.process import BrokerProcess
from compat_tests.brokers.proxied import PROXIED, ProxiedBroker, is_of_tenants
from compat_tests.brokers.side_by_side import SideBySide
from compat_tests.clients import franz_go, kafkajs
from compat_tests.clients.aiokafka_client import AioKafka
from compat_tests.clients.base import AdminClient, Client, Feature
from compat_tests.clients.confluent import Confluent
from compat_tests.clients.java_client import JavaClient, JavaDriver
from compat_tests.clients.kafka_python import KafkaPython
from compat_tests.clients.kcat import Kcat
from compat_tests.selection import ON_NODES, below, leave_out
from compat_tests.wire.transaction_wire import Peer, new_peers
from compat_tests.wire.wire import Wire
from tests.scheduling import unit_of

ADMINS = (
    "kafka-python",
    "aiokafka",
    "confluent-kafka",
    pytest.param("java", marks=pytest.mark.java),
)
CLIENTS = (*ADMINS, pytest.param("kcat", marks=pytest.mark.kcat))

BROKERS: dict[str, type[ApacheKafka] | type[ApacheKafkaCluster] | type[OttlaBroker] | type[ProxiedBroker]] = {
    "ottla": OttlaBroker,
    "kafka": ApacheKafka,
    "ottla3": OttlaCluster,
    "kafka3": ApacheKafkaCluster,
    "ottla3-etcd": OttlaOnEtcd,
    **{f"{proxied.behind_name}-proxy": proxied for proxied in PROXIED},
}
BOTH = ("ottla", "kafka")
LEFT_OUT = ("security", "groups", "replicas", "mirror", "proxy", "differential", "tiers")

Connect = Callable[[BrokerProcess, str], AdminClient]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--broker",
        choices=[*BROKERS, "both"],
        default="ottla",
        help="what the scenarios of compat_tests run against",
    )
    parser.addoption("--nodes", action="store_true", help="run those that are marked nodes on three nodes as well")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    for fixture, names in {"client_name": CLIENTS, "admin_name": ADMINS}.items():
        if fixture in metafunc.fixturenames:
            metafunc.parametrize(fixture, names, scope="session")
    if "broker_kind" in metafunc.fixturenames:
        chosen = metafunc.config.getoption("--broker")
        kinds: Sequence[Any] = BOTH if chosen == "both" else [chosen]
        if metafunc.config.getoption("--nodes") and metafunc.definition.get_closest_marker("nodes") is not None:
            kinds = [*kinds, pytest.param("ottla3", id=ON_NODES)]
        metafunc.parametrize("broker_kind", kinds, scope="session")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Those with a mark of `LEFT_OUT` run only with `-m` of it.

    aiokafka and kafka-python leave the sockets of lost connections to the garbage collector.
    """
    mine = below(Path(__file__).parent, items)
    for item in mine:
        item.add_marker(pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"))
    leave_out(config, items, (item for item in mine if _is_left_out(config, item)))


def _is_left_out(config: pytest.Config, item: pytest.Item) -> bool:
    for marker in LEFT_OUT:
        if item.get_closest_marker(marker) is not None and marker not in config.option.markexpr:
            return True
    if config.getoption("--broker") == "ottla-tenants-proxy" and not is_of_tenants(item.path.name, item.name):
        return True
    if config.getoption("--nodes") and _is_of_another_client(item):
        return True
    # A scenario by wire knows one broker by its address, or several: not those that a proxy has behind one address.
    hides_nodes = config.getoption("--broker") in ("ottla3-proxy", "kafka3-proxy")
    return hides_nodes and item.path.name.startswith("test_wire_")


def _is_of_another_client(item: pytest.Item) -> bool:
    """Whether it would run on three nodes with another client than its mark names."""
    marker = item.get_closest_marker("nodes")
    if marker is None or not isinstance(item, pytest.Function) or ON_NODES not in item.callspec.id:
        return False
    return "client" in marker.kwargs and marker.kwargs["client"] not in item.callspec.params.values()


@pytest.fixture(autouse=True)
def programs(request: pytest.FixtureRequest) -> None:
    """Skips what this machine lacks the programs for, and says which."""
    kind = request.node.callspec.params.get("broker_kind") if hasattr(request.node, "callspec") else None
    needs_java = request.node.get_closest_marker("java") is not None or str(kind).startswith("kafka")
    if needs_java and (reason := java.missing()):
        pytest.skip(reason)
    if kind == "ottla3-etcd" and shutil.which("etcd") is None:
        pytest.skip("etcd is not installed")
    for marker, lacks in (("kafkajs", kafkajs.missing), ("franz_go", franz_go.missing)):
        if request.node.get_closest_marker(marker) is not None and (reason := lacks()):
            pytest.skip(reason)
    if request.node.get_closest_marker("kcat") is not None and shutil.which("kcat") is None:
        pytest.skip("kcat is not installed")


@pytest.fixture(autouse=True, scope="module")
def collected() -> Iterator[None]:
    """What clients left open is collected here, where its warnings are expected, and not in tests of other things."""
    yield
    gc.collect()


@pytest.fixture(scope="session")
def broker(broker_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """The broker that all scenarios share."""
    with BROKERS[broker_kind](tmp_path_factory.mktemp(broker_kind)) as process:
        yield process


_SIDE_BY_SIDE = pytest.StashKey[SideBySide]()


@pytest.fixture(scope="session")
def side_by_side(pytestconfig: pytest.Config) -> Iterator[SideBySide]:
    found = pytestconfig.stash[_SIDE_BY_SIDE] = SideBySide()
    yield found
    found.stop()


@pytest.fixture(scope="module")
def both(side_by_side: SideBySide, tmp_path_factory: pytest.TempPathFactory) -> tuple[BrokerProcess, BrokerProcess]:
    """Apache Kafka and Ottla side by side, whatever `--broker` says. The files of a unit share them."""
    if reason := java.missing():
        pytest.skip(reason)
    return side_by_side.start(tmp_path_factory.mktemp("both"))


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """After a unit nobody needs Apache Kafka any more."""
    found = item.config.stash.get(_SIDE_BY_SIDE, None)
    if found is not None and (nextitem is None or unit_of(nextitem.nodeid) != unit_of(item.nodeid)):
        found.stop()


@pytest.fixture
def own_broker(broker_kind: str, tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker that the scenario may stop, kill and start."""
    own = BROKERS[broker_kind](tmp_path)
    if isinstance(own, OttlaBroker) and not own.is_cluster:
        own.is_forked = True
    with own as process:
        yield process


@pytest.fixture(scope="session")
def java_driver() -> Iterator[JavaDriver]:
    driver = JavaDriver()
    yield driver
    driver.close()


@pytest.fixture
def connect(request: pytest.FixtureRequest) -> Iterator[Callable[[BrokerProcess, str], Client]]:
    """Connects a client, by its name, to a broker, and closes it after the scenario."""
    opened: list[Client] = []

    def connect_client(process: BrokerProcess, name: str) -> Client:
        kinds: dict[str, Callable[[str], Client]] = {
            "kafka-python": KafkaPython,
            "aiokafka": AioKafka,
            "confluent-kafka": Confluent,
            "java": lambda bootstrap: JavaClient(bootstrap, request.getfixturevalue("java_driver")),
            "kcat": Kcat,
        }
        opened.append(kinds[name](process.bootstrap))
        return opened[-1]

    yield connect_client
    while opened:
        opened.pop().close()


@pytest.fixture
def client(broker: BrokerProcess, client_name: str, connect: Callable[[BrokerProcess, str], Client]) -> Client:
    """Each client in turn, on the shared broker."""
    return connect(broker, client_name)


@pytest.fixture
def admin(broker: BrokerProcess, admin_name: str, connect: Connect) -> AdminClient:
    """Each client that can manage topics in turn, on the shared broker."""
    return connect(broker, admin_name)


@pytest.fixture
def reference(broker: BrokerProcess) -> Confluent:
    """The client that prepares, where another is under test."""
    return Confluent(broker.bootstrap)


_numbers = itertools.count(1)


@pytest.fixture
def new_topic(reference: Confluent) -> Callable[..., str]:
    """Creates a topic that nobody else uses: `new_topic(partitions=1, **{"cleanup.policy": "compact"})`."""

    def create(partitions: int = 1, **configs: str) -> str:
        topic = f"scenario-{next(_numbers)}"
        reference.create_topic(topic, partitions=partitions, configs=configs)
        return topic

    return create


@pytest.fixture
def topic(new_topic: Callable[..., str]) -> str:
    return new_topic()


@pytest.fixture
def needs(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Skips the scenario for a client that lacks one of the features."""

    def skip_without(client: Client, *features: Feature) -> None:
        if lacking := client.lacks.intersection(features):
            names = ", ".join(sorted(feature.name for feature in lacking))
            pytest.skip(f"{client.name} lacks {names}")

    return skip_without


@pytest.fixture
def wire(broker: BrokerProcess) -> Iterator[Wire]:
    connection = Wire(broker.bootstrap)
    yield connection
    connection.close()


@pytest.fixture
def topic_partitions() -> int:
    """Of the topic that the peers of a test share."""
    return 2


@pytest.fixture
def new_peer(wire: Wire, topic_partitions: int) -> Callable[[], Peer]:
    return new_peers(wire, topic_partitions)


@pytest.fixture
def peer(new_peer: Callable[[], Peer]) -> Peer:
    return new_peer()
