"""docs/proxy-filters.md: its classes do what the page says, and its tables are taken."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.data.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.kproto.records import Record, build_batch, iter_records
from ottla.proxy.filters.catalog import OWN, make_filters
from ottla.testing import run_filter

PAGE = (Path(__file__).parents[3] / "docs" / "proxy-filters.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def page() -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "page"}
    for block in blocks("python"):
        exec(block, names)
    return names


def produce(value: bytes) -> ProduceRequest:
    partition = PartitionProduceData(index=0, records=build_batch([Record(timestamp_ms=1, value=value)]))
    return ProduceRequest(acks=1, topic_data=[TopicProduceData(name="t", partition_data=[partition])])


def test_no_deletions(page: dict[str, Any]) -> None:
    page["test_topics_stay"]()


def test_slowly(page: dict[str, Any]) -> None:
    answer: Any = run_filter(page["Slowly"](requests=0, delay_ms=7), produce(b"a"))
    assert answer.throttle_time_ms == 7
    answer = run_filter(page["Slowly"](requests=1, delay_ms=7), produce(b"a"))
    assert answer.throttle_time_ms == 0


def test_no_card_numbers(page: dict[str, Any]) -> None:
    from ottla.kproto.messages.data.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData

    answer: Any = run_filter(page["NoCardNumbers"](), produce(b"pay 4111111111111111 now"))
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.INVALID_RECORD
    records = build_batch([Record(timestamp_ms=1, value=b"pay 4111111111111111 now")])
    topic = FetchableTopicResponse(topic="t", partitions=[PartitionData(records=records)])
    answer = run_filter(page["NoCardNumbers"](), FetchRequest(), lambda request: FetchResponse(responses=[topic]))
    (record,) = iter_records(answer.responses[0].partitions[0].records)
    assert record.value == b"pay **** now"


def test_tables_are_taken_and_every_filter_that_comes_with_ottla_has_a_chapter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("jsonschema_rs")
    pytest.importorskip("cryptography")
    monkeypatch.chdir(tmp_path)
    Path("orders.schema.json").write_text("{}")
    (keys,) = (block for block in blocks('toml title="keys.toml"'))
    Path("keys.toml").write_text(keys)
    Path("keys.toml").chmod(0o600)
    tables = [table for block in blocks("toml") for table in tomllib.loads(block).get("filter", [])]
    own = [table for table in tables if table["type"] in OWN]
    assert {table["type"] for table in own} == OWN.keys()
    for table in own:
        make_filters([table])
    assert {name for name in OWN if f"\n## {name}\n" in PAGE} == OWN.keys()
