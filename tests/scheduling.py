"""In which order the files of tests are begun, and which of them share a worker, where several workers run them.

A unit is what one worker runs: a file, or several files that need the same thing which takes long to start.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from compat_tests.selection import ON_NODES

if TYPE_CHECKING:
    import pytest

TOGETHER: Final[Mapping[str, tuple[str, ...]]] = {
    "Spark": (
        "compat_tests/spark/",
        "tests/pipeline/share/test_decide.py",
        "tests/pipeline/share/test_spark.py",
        "tests/pipeline/source/test_spark.py",
        "tests/pipeline/tables/test_changed_settings.py",
        "tests/pipeline/tables/test_parquet.py",
        "tests/pipeline/tables/test_parquet_jobs.py",
        "tests/pipeline/values/test_exact_decimals.py",
        "tests/pipeline/values/test_hostile_json.py",
    ),
    "Simulations": ("tests/simulation/",),
    "Apache Kafka": (
        "compat_tests/scenarios/test_admin_clients.py",
        "compat_tests/tools/",
        "compat_tests/wire/test_wire_settings.py",
    ),
}
"""Units of several files or folders. A JVM with Spark or with Apache Kafka costs ten seconds of a core to start.

Simulations come before everything else of their worker: they plant faults in the product and replace its clocks, and
would end a broker that other tests share.
"""

NODES: Final = "Three nodes"
"""The unit of what `--nodes` adds, of several files: a worker has one broker at a time for all that share one."""

FIRST: Final = (
    "Simulations",
    "compat_tests/scenarios/test_groups.py",
    "Spark",
    NODES,
    "compat_tests/scenarios/test_transactions.py",
    "Apache Kafka",
    "compat_tests/scenarios/test_records.py",
    "compat_tests/scenarios/test_restarts.py",
    "compat_tests/scenarios/test_share_groups.py",
    "tests/attack/test_attacks.py",
    "compat_tests/wire/groups/test_wire_streams_4_4.py",
    "tests/pipeline/tables/test_iceberg.py",
    "compat_tests/scenarios/test_positions.py",
    "compat_tests/scenarios/test_replication.py",
    "compat_tests/scenarios/test_franz_go.py",
    "tests/replica/test_followers.py",
    "tests/server/cluster/test_replaced_transaction_coordinators.py",
    "compat_tests/wire/groups/test_wire_streams.py",
    "tests/cli/serve/test_serve_nodes.py",
    "tests/server/apis/test_every_request.py",
    "tests/metastore/test_etcd.py",
    "compat_tests/scenarios/test_exactly_once.py",
    "compat_tests/wire/groups/test_wire_group_overlaps.py",
    "tests/storage/test_damage.py",
    "tests/testing/test_cluster.py",
    "tests/settings/test_dynamic_settings.py",
    "tests/kproto/java/test_messages.py",
    "tests/cli/serve/test_serve.py",
    "tests/cli/records/test_produce_consume.py",
    "tests/server/test_transaction_histories.py",
    "tests/testing/test_pytest_plugin.py",
    "compat_tests/wire/test_wire_administration.py",
    "tests/cli/test_mcp.py",
    "compat_tests/wire/groups/test_wire_classic_groups.py",
    "tests/cli/folders/backup/test_backup.py",
    "tests/kproto/test_codec.py",
    "compat_tests/scenarios/test_compaction_as_kafka.py",
    "tests/cli/groups/test_group.py",
    "compat_tests/wire/groups/test_wire_dead_letters.py",
    "tests/proxy/test_proxy.py",
    "compat_tests/scenarios/test_streams.py",
    "tests/cli/doctor/test_doctor.py",
    "compat_tests/security/test_security.py",
    "tests/registry/test_writer.py",
    "tests/cli/records/test_schema_formats.py",
    "tests/registry/test_hostile_set.py",
    "compat_tests/scenarios/test_topics.py",
    "tests/server/cluster/test_replaced_coordinators.py",
    "tests/testing/test_external.py",
    "tests/pipeline/sink/test_exactly_once.py",
    "compat_tests/proxy/test_proxy_cache.py",
    "tests/kproto/hot/test_produce.py",
    "tests/docs/test_examples.py",
    "tests/testing/test_guide.py",
    "compat_tests/wire/test_wire_transactions.py",
    "tests/kproto/test_robustness.py",
    "tests/storage/store/test_full_disk.py",
    "tests/pipeline/source/test_apache_kafka.py",
    "compat_tests/wire/test_wire_transaction_timeouts.py",
    "tests/cli/test_operations_page.py",
    "tests/cli/folders/backup/test_backup_etcd.py",
    "tests/cli/mirror/test_mirror.py",
    "tests/packaging/test_distributions.py",
)
"""Units that take long, the longest first, and those that wait between those that compute: the others would wait for
the worker that begins a long unit last, and a core has nothing to do where all workers wait."""


@cache
def _unit_of_file(path: str) -> str:
    return next((name for name, paths in TOGETHER.items() if path.startswith(paths)), path)


def unit_of(node_id: str) -> str:
    """The name of the unit that a test is of."""
    path, _, name = node_id.partition("::")
    return NODES if ON_NODES in name else _unit_of_file(path)


def order_of(items: list[pytest.Item]) -> Callable[[pytest.Item], Any]:
    """The key that sorts these tests: those of `FIRST`, and then the units of many tests."""
    counts = Counter(unit_of(item.nodeid) for item in items)
    places = {name: place for place, name in enumerate(FIRST)}

    def key(item: pytest.Item) -> tuple[int, int, str, str]:
        unit = unit_of(item.nodeid)
        return places.get(unit, len(places)), -counts[unit], unit, str(item.path)

    return key
