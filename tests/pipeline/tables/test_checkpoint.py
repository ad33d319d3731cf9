"""Which jobs a checkpoint belongs to."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from ottla.pipeline.tables.checkpoint import Identity
from ottla.pipeline.tables.config import TableConfig
from ottla.pipeline.tables.errors import CheckpointError

TABLE = TableConfig(
    "orders", "lake/orders", name="orders", mode="upsert", key="id", key_type="long", partition_by=("_date",)
)


def test_a_checkpoint_goes_on_with_the_table_it_was_made_for() -> None:
    made = Identity.new(TABLE, "topic-id")
    kept = Identity.from_json(made.to_json())
    assert kept == made
    others = replace(TABLE, compact_files=3, start="latest", max_offsets_per_batch=5, metadata=False)
    assert kept.claimed(others, "checkpoints/orders") == made


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"format": "parquet"}, 'was written with format = "delta", not with format = "parquet"'),
        ({"partition_by": ()}, r'with partition_by = \["_date"\], not with partition_by = \[\]'),
        ({"partition_by": ("day",)}, r'partition_by = \["_date"\], not with partition_by = \["day"\]'),
        ({"key": "customer"}, 'with key = "id", not with key = "customer"'),
        ({"key": None}, 'with key = "id", not with no key'),
        ({"key_type": "int"}, 'with key_type = "long", not with key_type = "int"'),
    ],
)
def test_what_the_rows_depend_on_stays_as_it_was(changed: dict[str, Any], sentence: str) -> None:
    kept = Identity.new(TABLE, "topic-id")
    with pytest.raises(CheckpointError, match=f"Table 'orders' .*{sentence}.* another path and another checkpoint"):
        kept.claimed(replace(TABLE, **changed), "checkpoints/orders")


@pytest.mark.parametrize("changed", [{"topic": "t"}, {"path": "elsewhere"}, {"mode": "append"}, {"decode": "raw"}])
def test_another_table_has_a_checkpoint_of_its_own(changed: dict[str, Any]) -> None:
    kept = Identity.new(TABLE, "topic-id")
    with pytest.raises(CheckpointError, match=r"The checkpoint checkpoints/orders belongs to .*: give this table"):
        kept.claimed(replace(TABLE, **changed), "checkpoints/orders")


def test_a_checkpoint_of_an_earlier_version_learns_how_its_table_is_written() -> None:
    fields = ("app_id", "topic", "topic_id", "path", "mode", "decode")
    made = json.loads(Identity.new(TABLE, "topic-id").to_json())
    earlier = Identity.from_json(json.dumps({name: made[name] for name in fields}))
    claimed = earlier.claimed(TABLE, "checkpoints/orders")
    assert claimed == Identity.from_json(json.dumps(made))
    with pytest.raises(CheckpointError, match="was written with format"):
        claimed.claimed(replace(TABLE, format="parquet"), "checkpoints/orders")
