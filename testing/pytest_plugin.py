"""The pytest plugin: broker fixtures, an option and a marker. Nothing is loaded until a test asks for a broker.

- `ottla_session_broker`: one broker for the session (of each pytest-xdist worker), started when it is first asked for.
- `ottla_broker`: the same broker, as new for each test and reset after it. A test with `@pytest.mark.ottla(config={…})`
  or `(process=True)` gets a broker of its own, and so does one that says who may connect and what they may do: `users`,
  `acls`, `tls`. `topics` are created beforehand, as names or as a mapping of names to partitions, and `load` names
  files of records.
- `ottla_session_cluster`, `ottla_cluster`: the same with three brokers, each a process of its own that a test may kill,
  pause and restart. `@pytest.mark.ottla(nodes=5)` makes a cluster of that many.
- `--ottla-data-dir`: keep the data in this folder instead of in memory, to look at it afterwards.
- `ottla_config` in pytest's settings: broker settings for every broker, one `name=value` per line.
- `--ottla-bootstrap`, or OTTLA_TEST_BOOTSTRAP: the same tests with an Apache Kafka that runs elsewhere. What only
  Ottla's own broker offers skips the test. `--ottla-command-config`, or OTTLA_TEST_COMMAND_CONFIG, names a file of
  client properties with the login and the certificates that it asks for.

When a test with one of them fails, its report says which topics and groups there were.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

if TYPE_CHECKING:
    from ottla.testing.broker import Broker
    from ottla.testing.cluster import Cluster
    from ottla.testing.external import ExternalBroker

_BROKER: pytest.StashKey[Broker | Cluster | ExternalBroker] = pytest.StashKey()

B = TypeVar("B", "Broker", "Cluster", "ExternalBroker")

_ARGUMENTS = ("config", "topics", "load", "process", "nodes", "users", "acls", "tls", "max_versions")

_MARKER = (
    "ottla(config=None, topics=(), load=(), process=False, nodes=3, users=None, acls=None, tls=False, "
    "max_versions=None): what the `ottla_broker` or `ottla_cluster` of a test is like: broker settings by Kafka's "
    "names, topics (names, or names with partitions), files of records, a process of its own, how many nodes, "
    "passwords by user, entries as `ottla acl add` takes them, whether connections are encrypted, the release of "
    "Apache Kafka that it passes for"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("ottla", "brokers for tests")
    group.addoption(
        "--ottla-data-dir", metavar="DIR", help="keep the data of test brokers in this folder instead of in memory"
    )
    group.addoption(
        "--ottla-bootstrap",
        metavar="HOST:PORT",
        default=os.environ.get("OTTLA_TEST_BOOTSTRAP"),
        help="run the tests against the Apache Kafka at this address (also: OTTLA_TEST_BOOTSTRAP)",
    )
    group.addoption(
        "--ottla-command-config",
        metavar="FILE",
        help="how to connect to that Apache Kafka: a client's properties, as Kafka's tools take them "
        "(also: OTTLA_TEST_COMMAND_CONFIG)",
    )
    parser.addini("ottla_config", "settings of test brokers, one name=value a line", type="linelist", default=[])


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", _MARKER)
    if config.getoption("--ottla-command-config") and not config.getoption("--ottla-bootstrap"):
        raise pytest.UsageError(
            "--ottla-command-config says how to connect to the Kafka of --ottla-bootstrap: give both"
        )
    if config.getoption("--ottla-bootstrap") and getattr(config.option, "numprocesses", None):
        raise pytest.UsageError("--ottla-bootstrap: tests that share one Kafka cannot run in parallel")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    broker = item.stash.get(_BROKER, None)
    if report.failed and broker is not None:
        from ottla.testing.summary import summary

        report.sections.append((broker.fixture, summary(broker)))
    return report


@pytest.fixture(scope="session")
def ottla_session_broker(request: pytest.FixtureRequest) -> Iterator[Broker | ExternalBroker]:
    """A broker for the whole session. What one test leaves in it, the next one finds; see also `ottla_broker`."""
    if bootstrap := request.config.getoption("--ottla-bootstrap"):
        from ottla.testing.external import ExternalBroker

        command_config = request.config.getoption("--ottla-command-config") or os.environ.get(
            "OTTLA_TEST_COMMAND_CONFIG"
        )
        with ExternalBroker(bootstrap, command_config or None) as external:
            yield external
        return
    from ottla.testing.broker import Broker

    worker = getattr(request.config, "workerinput", {}).get("workerid", "")
    with Broker(config=_session_config(request.config), data_dir=_data_dir(request.config, worker)) as broker:
        yield broker


@pytest.fixture
def ottla_broker(request: pytest.FixtureRequest) -> Iterator[Broker | ExternalBroker]:
    """A broker without topics, groups and faults, reset after the test."""
    marker = request.node.get_closest_marker("ottla")
    wanted = _wanted(marker)
    if wanted.needs_own_broker:
        _skip_without_own(request.config, "a broker with settings, users or a process of its own")
        from ottla.testing.broker import Broker

        config = {**_session_config(request.config), **wanted.config}
        with Broker(config=config, process=wanted.process, **wanted.access) as broker:
            wanted.prepare(broker, request.path.parent)
            yield from _shown(request.node, broker)
        return
    broker = request.getfixturevalue("ottla_session_broker")
    wanted.prepare(broker, request.path.parent)
    yield from _shown(request.node, broker)
    if not broker.is_running:
        broker.start()  # the test has stopped it
    broker.reset()


@pytest.fixture(scope="session")
def ottla_session_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Three brokers for the whole session. What one test leaves in them, the next one finds; see `ottla_cluster`."""
    _skip_without_own(request.config, "a cluster whose nodes can be killed")
    from ottla.testing.cluster import Cluster

    worker = getattr(request.config, "workerinput", {}).get("workerid", "")
    data_dir = _data_dir(request.config, worker)
    folder = None if data_dir is None else data_dir / "cluster"
    with Cluster(config=_session_config(request.config), data_dir=folder) as cluster:
        yield cluster


@pytest.fixture
def ottla_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Three brokers without topics and groups, all running; reset after the test."""
    wanted = _wanted(request.node.get_closest_marker("ottla"))
    _skip_without_own(request.config, "a cluster whose nodes can be killed")
    if wanted.needs_own_cluster:
        from ottla.testing.cluster import Cluster

        config = {**_session_config(request.config), **wanted.config}
        with Cluster(wanted.nodes or 3, config=config, **wanted.access) as cluster:
            wanted.prepare(cluster, request.path.parent)
            yield from _shown(request.node, cluster)
        return
    cluster = request.getfixturevalue("ottla_session_cluster")
    wanted.prepare(cluster, request.path.parent)
    yield from _shown(request.node, cluster)
    cluster.reset()


def _skip_without_own(config: pytest.Config, what: str) -> None:
    if bootstrap := config.getoption("--ottla-bootstrap"):
        pytest.skip(f"the test needs {what}, and this run uses {bootstrap}")


def _wanted(marker: pytest.Mark | None) -> _Wanted:
    """What the test asks for; an unknown argument of the marker fails the test with a sentence."""
    if marker is None:
        return _Wanted()
    known = ", ".join(_ARGUMENTS)
    if marker.args:
        pytest.fail(
            f"@pytest.mark.ottla takes its arguments by name, and {marker.args[0]!r} has none: there are {known}.",
            pytrace=False,
        )
    for name in marker.kwargs:
        if name not in _ARGUMENTS:
            from difflib import get_close_matches

            nearest = get_close_matches(name, _ARGUMENTS, n=1)
            hint = f" Did you mean {nearest[0]}?" if nearest else ""
            pytest.fail(f"@pytest.mark.ottla does not know {name!r}.{hint} There are {known}.", pytrace=False)
    return _Wanted(**marker.kwargs)


def _shown(item: pytest.Item, broker: B) -> Iterator[B]:
    """Provide the broker to a test; the test's report may look at it meanwhile."""
    item.stash[_BROKER] = broker
    try:
        yield broker
    finally:
        del item.stash[_BROKER]


class _Wanted:
    """The arguments of the marker."""

    def __init__(
        self,
        *,
        config: Mapping[str, object] | None = None,
        topics: Mapping[str, int] | tuple[str, ...] | list[str] | str = (),
        load: tuple[str, ...] | list[str] | str = (),
        process: bool = False,
        nodes: int | None = None,
        users: Mapping[str, str] | None = None,
        acls: tuple[str, ...] | list[str] | None = None,
        tls: bool = False,
        max_versions: str | None = None,
    ) -> None:
        self.config = dict(config or {})
        if max_versions is not None:
            self.config["ottla.kafka.release"] = max_versions
        self.process = process
        self.nodes = nodes
        self.access: dict[str, Any] = {"users": users, "acls": acls, "tls": tls}
        self._is_open = users is None and acls is None and not tls
        self._topics = {topics: 1} if isinstance(topics, str) else topics
        self._load = [load] if isinstance(load, str) else load

    @property
    def needs_own_broker(self) -> bool:
        return bool(self.config) or self.process or not self._is_open

    @property
    def needs_own_cluster(self) -> bool:
        return bool(self.config) or self.nodes is not None or not self._is_open

    def prepare(self, broker: Broker | Cluster | ExternalBroker, folder: Path) -> None:
        """Create the topics and load the files, whose names are relative to the test's folder."""
        topics = self._topics if isinstance(self._topics, Mapping) else dict.fromkeys(self._topics, 1)
        for name, partitions in topics.items():
            broker.create_topic(name, partitions)
        for name in self._load:
            broker.load(folder / name)


def _session_config(config: pytest.Config) -> dict[str, Any]:
    lines = config.getini("ottla_config")
    pairs = (line.partition("=") for line in lines)
    return {name.strip(): value.strip() for name, _, value in pairs}


def _data_dir(config: pytest.Config, worker: str) -> Path | None:
    folder = config.getoption("ottla_data_dir")
    return None if folder is None else Path(folder) / worker
