"""What histories send: every API, every version of it that clients may ask in, and every field."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from compat_tests.differential import draft
from compat_tests.differential.areas import AREAS, written
from compat_tests.differential.areas.cluster import OF_CONTROLLERS
from compat_tests.differential.history import Step
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.messages import request_class
from ottla.kproto.schema import StructType

SEEDS = 60
#: Fields that no history sets, and why.
NEVER_SET = {
    # InitProducerId 6 is not released.
    "INIT_PRODUCER_ID enable2_pc",
    "INIT_PRODUCER_ID keep_prepared_txn",
    # What followers say of themselves: only a broker of the cluster is believed.
    "FETCH cluster_id",
    "FETCH topics.partitions.log_start_offset",
    "FETCH topics.partitions.replica_directory_id",
    "FETCH topics.partitions.high_watermark",
}
_GLOBAL_STORES = "STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE topology_description.global_stores."


@pytest.fixture(scope="module")
def steps() -> list[Step]:
    """As the areas write them: what is strayed is any field of any API."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(draft, "strayed", lambda _random, _cls, fields, version: (fields, version, {}))
        return [step for area in AREAS for seed in range(SEEDS) for step in written(area, seed).steps if step.api]


def test_every_version_of_every_api_is_sent(steps: list[Step]) -> None:
    sent = Counter((step.api, step.version) for step in steps)
    never = [
        f"{api.name} v{version}"
        for api in ApiKey
        for version in range(api.valid_versions.lowest, api.valid_versions.highest + 1)
        if not sent[api.name, version] and api.name not in OF_CONTROLLERS
    ]
    assert never == []
    assert {step.api for step in steps} == {api.name for api in ApiKey}


def test_every_field_is_set(steps: list[Step]) -> None:
    seen = {f"{step.api} {path}" for step in steps for path in _paths(request_class(step.api_key), step.fields)}
    fields = {f"{api.name} {path}" for api in ApiKey for path in _all_paths(request_class(api))}
    never = {each for each in fields - seen if each.split()[0] not in OF_CONTROLLERS}
    # Its two nodes are nodes as those of subtopologies are.
    assert {each for each in never if not each.startswith(_GLOBAL_STORES)} == NEVER_SET


def _paths(cls: StructType, fields: dict[str, Any], above: str = "") -> Iterator[str]:
    for field in cls.FIELDS:
        if field.name in fields:
            yield above + field.name
            value = fields[field.name]
            for each in value if isinstance(value, list) else [value]:
                if isinstance(field.element, StructType) and isinstance(each, dict):
                    yield from _paths(field.element, each, f"{above}{field.name}.")


def _all_paths(cls: StructType, above: str = "") -> Iterator[str]:
    for field in cls.FIELDS:
        yield above + field.name
        if isinstance(field.element, StructType):
            yield from _all_paths(field.element, f"{above}{field.name}.")
