"""An Iceberg table without Spark: its commits, its files, and a writer that is killed at every step."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import requests
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table

from compat_tests.iceberg import RestCatalogues
from ottla.pipeline.tables.errors import TableError
from ottla.pipeline.tables.iceberg.catalogue import open_catalogue
from ottla.pipeline.tables.iceberg.expiry import expire
from ottla.pipeline.tables.iceberg.table import IcebergTable, Rewrite
from ottla.pipeline.tables.iceberg.workers import KeyReader, Rewriter, Writer

SCHEMA = pa.schema(
    [
        pa.field("key", pa.string()),
        pa.field("n", pa.int32()),
        pa.field("side", pa.int32()),
        pa.field("at", pa.timestamp("us", tz="UTC")),
        pa.field("inner", pa.struct([pa.field("small", pa.int8()), pa.field("at", pa.timestamp("us", tz="UTC"))])),
        pa.field("counts", pa.map_(pa.string(), pa.int64())),
    ]
)


Settings = Callable[[Path], Mapping[str, str]]
"""What `[iceberg]` says to have a catalogue for a folder."""


@pytest.fixture(params=["folder", "rest"])
def settings(request: pytest.FixtureRequest) -> Settings:
    if request.param == "rest":
        catalogues: RestCatalogues = request.getfixturevalue("rest_catalogues")
        return catalogues.settings
    return lambda folder: {"warehouse": str(folder)}


@pytest.fixture
def catalogue(tmp_path: Path, settings: Settings) -> Iterator[Catalog]:
    opened = open_catalogue(settings(tmp_path / "lake"))
    yield opened
    opened.close()


def rows(numbers: Sequence[int], schema: pa.Schema = SCHEMA) -> pa.RecordBatch:
    found = [
        {
            "key": f"k{n:03}",
            "n": n,
            "side": n % 2,
            "at": n,
            "inner": {"small": 1, "at": n},
            "counts": [("a", n)],
            "more": f"m{n}",
        }
        for n in numbers
    ]
    return pa.RecordBatch.from_pylist(found, schema=schema)


def run(worker: Any, *batches: pa.RecordBatch) -> list[Any]:
    """What a worker says of its files, after a journey to an executor."""
    there = pickle.loads(pickle.dumps(worker))
    return [pickle.loads(file) for out in there(iter(batches)) for file in out.column(0).to_pylist()]


def added(table: Table, numbers: Sequence[int], schema: pa.Schema = SCHEMA) -> Rewrite:
    return (), run(Writer(table.metadata, table.io, schema), rows(numbers, schema))


def append(table: IcebergTable, batch: int, numbers: Sequence[int]) -> None:
    table.fitted(SCHEMA)
    table.commit(("app", batch), lambda now: added(now, numbers))


def replaced(table: Table, keys: Sequence[str], numbers: Sequence[int]) -> Rewrite:
    """An upsert as the sink does it: which files hold the keys, those without them, and the new rows."""
    scans = list(table.scan().plan_files())
    each = pa.RecordBatch.from_pydict(
        {"number": range(len(scans)), "scans": [pickle.dumps([scan]) for scan in scans]},
        schema=pa.schema([pa.field("number", pa.int32()), pa.field("scans", pa.binary())]),
    )
    held = pa.Table.from_batches(KeyReader(table.metadata, table.io, "key", pa.string())(iter([each])))
    touched = sorted({row["number"] for row in held.to_pylist() if row["held"] in keys})
    wanted = pa.RecordBatch.from_pydict(
        {"scans": [pickle.dumps([scans[number]]) for number in touched], "keys": [list(keys)] * len(touched)},
        schema=pa.schema([pa.field("scans", pa.binary()), pa.field("keys", pa.list_(pa.string()))]),
    )
    kept = run(Rewriter(table.metadata, table.io, "key"), wanted)
    return [scans[number].file for number in touched], [*kept, *added(table, numbers)[1]]


def put_together(table: Table, groups: list[list[Any]]) -> list[Any]:
    scans = pa.array([pickle.dumps(group) for group in groups], pa.binary())
    return run(Rewriter(table.metadata, table.io), pa.RecordBatch.from_arrays([scans], ["scans"]))


def held(table: IcebergTable) -> list[int]:
    now = table.load()
    return [] if now is None else sorted(now.scan().to_arrow().column("n").to_pylist())


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("data/**/*.parquet")}


@pytest.mark.parametrize("partition_by", [[], ["side"]], ids=["whole", "by side"])
def test_batches_are_in_the_table_once(catalogue: Catalog, partition_by: list[str]) -> None:
    table = IcebergTable(catalogue, "shop.orders", partition_by)
    assert table.load() is None
    for batch in range(3):
        append(table, batch, range(batch * 10, batch * 10 + 10))
    table.commit(("app", 2), lambda _: pytest.fail("it is in the table"))
    table.commit(("app", 1), lambda _: pytest.fail("it is in the table"))
    assert held(table) == list(range(30))
    # Another checkpoint counts its batches anew.
    table.commit(("other", 0), lambda now: added(now, [30]))
    assert held(table) == list(range(31))

    now = table.load()
    assert now is not None
    assert [field.name for field in now.spec().fields] == partition_by
    summary = now.snapshots()[1].summary
    assert (summary["ottla.app-id"], summary["ottla.batch-id"]) == ("app", "1")
    row = now.scan("n == 7").to_arrow().to_pylist()[0]
    assert (row["inner"]["small"], row["counts"], row["at"]) == (1, [("a", 7)], datetime.fromtimestamp(7e-6, UTC))


def test_files_have_the_tables_types_whatever_spark_sends(catalogue: Catalog) -> None:
    table = IcebergTable(catalogue, "shop.orders")
    table.fitted(SCHEMA)
    zone = pa.timestamp("us", tz="Europe/Berlin")
    sent = SCHEMA.set(0, pa.field("key", pa.large_string())).set(3, pa.field("at", zone))
    sent = sent.set(4, pa.field("inner", pa.struct([pa.field("small", pa.int8()), pa.field("at", zone)])))
    now = table.fitted(SCHEMA)
    described = run(Writer(now.metadata, now.io, SCHEMA), rows([5]).cast(sent))
    table.commit(("app", 0), lambda _: ((), described))
    now = table.fitted(SCHEMA)
    assert now.scan().to_arrow().to_pylist() == rows([5]).to_pylist()


def test_columns_come_and_become_wider(catalogue: Catalog) -> None:
    table = IcebergTable(catalogue, "shop.orders")
    append(table, 0, [1, 2])
    before = table.load()
    assert before is not None
    assert table.fitted(SCHEMA).metadata_location == before.metadata_location  # nothing to commit
    wider = SCHEMA.set(1, pa.field("n", pa.int64())).append(pa.field("more", pa.string()))
    table.fitted(wider)
    table.commit(("app", 1), lambda now: added(now, [3], wider))
    # A batch that knows less than the table has.
    table.commit(("app", 2), lambda now: added(now, [4], SCHEMA))
    now = table.load()
    assert now is not None
    assert sorted((row["n"], row["more"]) for row in now.scan().to_arrow().to_pylist()) == [
        (1, None),
        (2, None),
        (3, "m3"),
        (4, None),
    ]
    with pytest.raises(TableError, match=r"cannot become those of the records: .*n: long -> string"):
        table.fitted(SCHEMA.set(1, pa.field("n", pa.string())))


@pytest.mark.parametrize("partition_by", [[], ["side"]], ids=["whole", "by side"])
def test_an_upsert_writes_anew_only_what_it_touches(catalogue: Catalog, partition_by: list[str]) -> None:
    table = IcebergTable(catalogue, "shop.orders", partition_by)
    for batch in range(3):
        append(table, batch, range(batch * 10, batch * 10 + 10))
    before = table.load()
    assert before is not None
    kept = {scan.file.file_path for scan in before.scan("n < 10").plan_files()}
    table.commit(("app", 3), lambda now: replaced(now, ["k011", "k022", "k999"], [22, 40]))
    assert held(table) == [*range(11), *range(12, 30), 40]
    now = table.load()
    assert now is not None
    assert kept <= {scan.file.file_path for scan in now.scan().plan_files()}
    # Keys that nobody has, and no new rows: nothing changes, and the batch is done nevertheless.
    table.commit(("app", 4), lambda later: replaced(later, ["never seen"], []))
    after = table.load()
    assert after is not None
    assert after.current_snapshot() == now.current_snapshot()
    assert table.has(after, ("app", 4))


def test_small_files_are_put_together_in_their_partitions(catalogue: Catalog) -> None:
    table = IcebergTable(catalogue, "shop.orders", ["side"])
    for batch in range(4):
        append(table, batch, range(batch * 10, batch * 10 + 10))
    append(table, 4, [101])
    assert not table.compact(6, put_together)
    assert table.compact(5, put_together)
    assert held(table) == [*range(40), 101]
    now = table.load()
    assert now is not None
    assert sorted(tuple(scan.file.partition) for scan in now.scan().plan_files()) == [(0,), (0,), (0,), (0,), (1,)]
    assert table.has(now, ("app", 4))


def test_a_commit_that_comes_second_asks_again(catalogue: Catalog, tmp_path: Path) -> None:
    table, other = (IcebergTable(catalogue, "shop.orders") for _ in range(2))
    append(table, 0, [1])
    asked: list[object] = []

    def change(now: Table) -> Rewrite:
        if not asked:
            other.commit(("other", 0), lambda later: added(later, [2]))
        asked.append(now.current_snapshot())
        return replaced(now, ["k001", "k002"], [3])

    table.commit(("app", 1), change)
    assert held(table) == [3]
    assert len(asked) == 2

    def same_batch(now: Table) -> Rewrite:
        other.commit(("app", 2), lambda later: added(later, [4]))
        return added(now, [4])

    table.commit(("app", 2), same_batch)
    assert held(table) == [3, 4]
    now = table.load()
    assert now is not None
    # Of what did not get into the table nothing is left.
    referred = {Path(row["file_path"]).name for row in now.inspect.all_files().to_pylist()}
    assert files(tmp_path) == referred

    def compaction(later: Table, groups: list[list[Any]]) -> list[Any]:
        append(other, 3, [5])
        return put_together(later, groups)

    assert not table.compact(2, compaction)
    assert held(table) == [3, 4, 5]


def test_old_snapshots_go_with_their_files(catalogue: Catalog, tmp_path: Path) -> None:
    table = IcebergTable(catalogue, "shop.orders")
    for batch in range(4):
        append(table, batch, [batch])
    now = table.load()
    assert now is not None
    assert expire(now) == 0
    second = now.snapshots()[1].snapshot_id
    now.manage_snapshots().create_tag(second, "kept").commit()
    assert table.compact(2, put_together)
    now = table.load()
    assert now is not None
    assert len(files(tmp_path)) == 5
    later = datetime.now(UTC) + timedelta(days=6)
    assert expire(now, later) == 3
    assert len(files(tmp_path)) == 3  # two of the tag's, and the one that all were put into
    assert held(table) == [0, 1, 2, 3]
    assert sorted(now.scan(snapshot_id=second).to_arrow().column("n").to_pylist()) == [0, 1]
    # The snapshot that brought the last batch is gone, and yet the batch is known.
    append(table, 3, [3])
    assert held(table) == [0, 1, 2, 3]
    assert expire(now, later) == 0


class KilledError(BaseException):
    """As a kill comes: nothing is tidied up."""


class Dying:
    """Ends its writer at the n-th change of files or of the catalogue, before or after it is made."""

    def __init__(self, patch: pytest.MonkeyPatch, step: int, before: bool) -> None:
        # Imported here, so that collecting this file costs nothing.
        from pyiceberg.catalog.rest import RestCatalog
        from pyiceberg.catalog.sql import SqlCatalog
        from pyiceberg.io.pyarrow import PyArrowFileIO

        self._left = step
        self._before = before
        changes = ((PyArrowFileIO, "new_output"), (PyArrowFileIO, "delete"))
        for owner, name in (*changes, (SqlCatalog, "commit_table"), (RestCatalog, "commit_table")):
            patch.setattr(owner, name, self._dying(getattr(owner, name)))

    def _dying(self, change: Any) -> Any:
        def changed(*arguments: Any, **named: Any) -> Any:
            self._left -= 1
            if self._left == 0 and self._before:
                raise KilledError
            done = change(*arguments, **named)
            if self._left == 0:
                raise KilledError
            return done

        return changed


def upsert(table: IcebergTable) -> None:
    table.commit(("app", 2), lambda now: replaced(now, ["k001", "k012"], [1, 50]))


def compact(table: IcebergTable) -> None:
    table.compact(2, put_together)
    now = table.load()
    assert now is not None
    expire(now, datetime.now(UTC) + timedelta(days=6))


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize(
    ("work", "numbers"),
    [
        (lambda table: append(table, 2, [20, 21]), [*range(20), 20, 21]),
        # Many steps, and so for the suite that takes its time.
        pytest.param(upsert, [*range(12), *range(13, 20), 50], marks=pytest.mark.spark),
        pytest.param(compact, [*range(20)], marks=pytest.mark.spark),
    ],
    ids=["append", "upsert", "compaction and expiry"],
)
def test_a_writer_killed_at_every_step(
    tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch, work: Any, numbers: list[int], before: bool
) -> None:
    for step in itertools.count(1):
        catalogue = open_catalogue(settings(tmp_path / str(step)))
        table = IcebergTable(catalogue, "shop.orders")
        append(table, 0, range(10))
        append(table, 1, range(10, 20))
        survived = True
        with monkeypatch.context() as patch:
            Dying(patch, step, before)
            try:
                work(table)
            except KilledError:
                survived = False
        assert held(table) in (list(range(20)), numbers)
        work(table)
        assert held(table) == numbers
        append(table, 3, [99])
        assert held(table) == [*numbers, 99]
        catalogue.close()
        if survived:
            break
    assert step > 3


def test_a_catalogue_that_never_takes_a_commit(catalogue: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    table = IcebergTable(catalogue, "shop.orders")
    append(table, 0, [1])

    def refuse(*_: object) -> None:
        raise CommitFailedException("another came first")

    with monkeypatch.context() as patch:
        patch.setattr(type(catalogue), "commit_table", refuse)
        with pytest.raises(CommitFailedException):
            table.commit(("app", 1), lambda now: added(now, [2]))
    assert held(table) == [1]


def test_a_catalogue_that_cannot_be_opened() -> None:
    with pytest.raises(TableError, match=r"The Iceberg catalogue cannot be opened; check \[iceberg\]"):
        open_catalogue({"type": "nonsense"})


def test_a_commit_whose_answer_is_lost(
    rest_catalogues: RestCatalogues, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knows whether it was made: its files must stay, and the batch that is repeated finds itself."""
    table = IcebergTable(open_catalogue(rest_catalogues.settings(tmp_path)), "shop.orders")
    append(table, 0, [1])
    send = requests.Session.post

    def lost(*arguments: Any, **named: Any) -> None:
        send(*arguments, **named)
        raise requests.exceptions.ReadTimeout

    with monkeypatch.context() as patch:
        patch.setattr(requests.Session, "post", lost)
        with pytest.raises(requests.exceptions.ReadTimeout):
            append(table, 1, [2])
    append(table, 1, [2])
    assert held(table) == [1, 2]


def test_a_catalogue_that_asks_who_is_there(rest_catalogues: RestCatalogues, tmp_path: Path) -> None:
    with pytest.raises(TableError, match="This is not the credential"):
        open_catalogue(rest_catalogues.settings(tmp_path, credential="ada:guessed"))
