"""What filters may do to messages, in a chain and behind the proxy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.data.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from ottla.kproto.messages.data.produce import (
    ProduceRequest,
)
from ottla.kproto.messages.groups.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.kproto.messages.topics.delete_topics import DeleteTopicsRequest
from ottla.kproto.messages.topics.metadata import MetadataRequest, MetadataResponse
from ottla.kproto.records import (
    Compression,
    Record,
    build_batch,
    iter_records,
    parse_batch_header,
)
from ottla.proxy.errors import ProxyError, RefusedError
from ottla.proxy.filters.catalog import make_filters
from ottla.proxy.filters.chain import Chain, Filters, Named
from ottla.proxy.filters.filter import Call, Client, Filter, RefusedByFilterError, request_hook, response_hook
from ottla.proxy.filters.records import Batch, RecordFilter
from ottla.proxy.metrics import Metrics
from ottla.testing import run_filter
from tests.proxy.filters.batches import Leader, batch, produce
from tests.proxy.upstreams import Upstream

Serve = Callable[..., Any]
HEARTBEAT = HeartbeatRequest(group_id="g", member_id="m")


class Marks(Filter):
    """Adds to the member id on the way in, to the throttle time on the way out."""

    def __init__(self, mark: str = "a", time_ms: int = 1) -> None:
        self.mark = mark
        self.time_ms = time_ms

    @request_hook(HeartbeatRequest)
    async def mark_request(self, request: HeartbeatRequest, call: Call) -> HeartbeatRequest:
        request.member_id += self.mark
        return request

    @response_hook(HeartbeatResponse)
    async def mark_response(self, response: HeartbeatResponse, call: Call) -> HeartbeatResponse:
        response.throttle_time_ms = response.throttle_time_ms * 10 + self.time_ms
        return response


class Answers(Filter):
    """Answers heartbeats itself."""

    @request_hook(HeartbeatRequest)
    async def answer(self, request: HeartbeatRequest, call: Call) -> HeartbeatResponse:
        return HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)


class Refuses(Filter):
    @request_hook(DeleteTopicsRequest)
    async def refuse(self, request: DeleteTopicsRequest, call: Call) -> None:
        raise RefusedByFilterError(ErrorCode.POLICY_VIOLATION, "topics are not deleted here")

    @request_hook(ProduceRequest)
    async def refuse_records(self, request: ProduceRequest, call: Call) -> None:
        raise RefusedByFilterError(ErrorCode.POLICY_VIOLATION)


class Fails(Filter):
    @request_hook(HeartbeatRequest)
    async def fail(self, request: HeartbeatRequest, call: Call) -> None:
        raise KeyError("a bug")

    @response_hook(MetadataResponse)
    async def fail_late(self, response: MetadataResponse, call: Call) -> None:
        raise KeyError("a bug")


class Upper(RecordFilter):
    """Capitals on the way in; secrets are left out on the way out; what says `bad` is refused."""

    async def produced(self, batch: Batch, call: Call) -> None:
        records = await batch.records()
        if any(record.value == b"bad" for record in records):
            raise RefusedByFilterError(ErrorCode.INVALID_RECORD, "it says bad")
        if any(record.value != record.value.upper() for record in records if record.value is not None):
            batch.replace([record._replace(value=(record.value or b"").upper()) for record in records])

    async def fetched(self, batch: Batch, call: Call) -> None:
        kept = [record for record in await batch.records() if record.value != b"SECRET"]
        if len(kept) < len(await batch.records()):
            batch.replace(kept)


class FailsForOne(Filter):
    """Cannot take its first client."""

    def __init__(self) -> None:
        self.has_failed = False

    def for_client(self, client: Client) -> Filter:
        if not self.has_failed:
            self.has_failed = True
            raise KeyError("a bug")
        return self


class AnswersNonsense(Filter):
    """Makes something of an answer that is none."""

    @response_hook(MetadataResponse)
    async def answer(self, response: MetadataResponse, call: Call) -> MetadataResponse:
        return {}  # type: ignore[return-value]


class Counts(Filter):
    """A state of its own for each connection."""

    def __init__(self) -> None:
        self.count = 0

    def for_client(self, client: Client) -> Counts:
        return Counts()

    @request_hook(HeartbeatRequest)
    async def answer(self, request: HeartbeatRequest, call: Call) -> HeartbeatResponse:
        self.count += 1
        return HeartbeatResponse(throttle_time_ms=self.count)


def test_filters_see_requests_in_order_and_responses_in_reverse() -> None:
    seen: list[HeartbeatRequest] = []

    def upstream(request: HeartbeatRequest) -> HeartbeatResponse:
        seen.append(request)
        return HeartbeatResponse()

    answer: Any = run_filter([Marks("a", 1), Marks("b", 2)], HEARTBEAT, upstream)
    assert seen[0].member_id == "mab"
    assert answer.throttle_time_ms == 21


def test_an_early_answer_passes_the_filters_before_it_alone() -> None:
    answer: Any = run_filter([Marks("a", 1), Answers(), Marks("b", 2)], HEARTBEAT, lambda request: 1 / 0)  # type: ignore[arg-type,return-value]
    assert answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert answer.throttle_time_ms == 1


@pytest.mark.parametrize("version", range(1, 6))
def test_a_refusal_becomes_the_error_of_each_thing_that_was_asked_for(version: int) -> None:
    answer: Any = run_filter(Refuses(), DeleteTopicsRequest(topic_names=["t", "u"]), version=version)
    assert [(it.name, it.error_code) for it in answer.responses] == [("t", 44), ("u", 44)]
    if version >= 5:
        assert {it.error_message for it in answer.responses} == {"topics are not deleted here"}


def test_a_refused_produce_without_acknowledgement_ends_the_connection() -> None:
    with pytest.raises(RefusedError, match="without acknowledgement"):
        run_filter(Refuses(), ProduceRequest(acks=0))


def test_a_filter_that_fails_answers_that_the_server_failed(caplog: pytest.LogCaptureFixture) -> None:
    answer: Any = run_filter(Fails(), HEARTBEAT)
    assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert "filter Fails-1 failed with a request" in caplog.text
    with pytest.raises(RefusedError, match="with which the filter Fails-1 failed"):
        run_filter(Fails(), MetadataRequest())


# Records


@pytest.mark.parametrize("compression", list(Compression))
def test_changed_batches_keep_all_but_the_values(compression: Compression) -> None:
    leader = Leader()
    sent = batch(
        b"one",
        b"two",
        compression=compression,
        producer_id=9,
        producer_epoch=3,
        base_sequence=40,
        is_transactional=True,
    )
    run_filter(Upper(), produce(sent), leader)
    stored = leader.stored["t", 0]
    assert [record.value for record in iter_records(stored, strict=True)] == [b"ONE", b"TWO"]
    before, after = parse_batch_header(sent), parse_batch_header(stored)
    assert after._replace(batch_length=0, crc=0) == before._replace(batch_length=0, crc=0)
    assert [record[:3] + record[4:] for record in iter_records(stored)] == [
        record[:3] + record[4:] for record in iter_records(sent)
    ]


def test_batches_that_are_not_changed_keep_their_bytes() -> None:
    leader = Leader()
    sent = batch(b"ONE", compression=Compression.GZIP)
    run_filter(Upper(), produce(sent), leader)
    assert leader.stored["t", 0] == sent


def test_topics_that_are_not_meant_are_not_decoded() -> None:
    leader = Leader()
    run_filter(Upper(topics="orders-.*"), produce(b"no batch at all", topic="t"), leader)
    assert leader.stored["t", 0] == b"no batch at all"
    run_filter(Upper(topics="orders-.*"), produce(batch(b"a"), topic="orders-1"), leader)
    assert [record.value for record in iter_records(leader.stored["orders-1", 0])] == [b"A"]


def test_a_refused_batch_fails_alone() -> None:
    leader = Leader()
    answer: Any = run_filter(Upper(), produce(batch(b"x"), batch(b"bad"), batch(b"z")), leader)
    assert leader.stored.keys() == {("t", 0), ("t", 2)}
    answers = {it.index: it for it in answer.responses[0].partition_responses}
    assert {index: it.error_code for index, it in answers.items()} == {0: 0, 1: ErrorCode.INVALID_RECORD, 2: 0}
    assert answers[1].error_message == "it says bad"
    assert (answers[0].base_offset, answers[1].base_offset) == (7, -1)


def test_where_all_are_refused_upstream_is_not_asked() -> None:
    answer: Any = run_filter(Upper(), produce(batch(b"bad")), lambda request: 1 / 0)  # type: ignore[arg-type,return-value]
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.INVALID_RECORD


def test_a_batch_that_cannot_be_read_is_refused() -> None:
    answer: Any = run_filter(Upper(), produce(b"\0" * 70))
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.CORRUPT_MESSAGE


def fetched(*batches: bytes) -> FetchResponse:
    partition = PartitionData(partition_index=3, records=b"".join(batches))
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[partition])])


def fetch(*batches: bytes) -> Any:
    request = FetchRequest(topics=[FetchTopic(topic="t", partitions=[FetchPartition(partition=3)])])
    answer: Any = run_filter(Upper(), request, lambda request: fetched(*batches))
    return answer.responses[0].partitions[0]


def test_records_may_be_left_out_of_what_is_fetched() -> None:
    sent = batch(b"a", b"SECRET", b"c", base_offset=10)
    marker = build_batch([Record(key=b"\0\0\0\1", value=b"")], is_control=True, base_offset=13)
    last = batch(b"d", base_offset=14)
    got = bytes(fetch(sent, marker, last).records)
    assert [(record.offset, record.value) for record in iter_records(got)] == [(10, b"a"), (12, b"c")]
    assert parse_batch_header(got).last_offset == 12
    assert got.endswith(marker + last)


def test_a_fetch_of_which_nothing_changes_keeps_its_bytes_and_what_is_cut_off() -> None:
    sent, cut = batch(b"a"), batch(b"b" * 100)[:80]
    assert bytes(fetch(sent, cut).records) == sent + cut


def test_a_fetched_batch_that_cannot_be_read_is_that_partitions_error() -> None:
    got = fetch(batch(b"a")[:-1] + b"\xff")  # an inner length that lies
    assert got.error_code in (0, ErrorCode.CORRUPT_MESSAGE)
    got = fetch(b"\0" * 11 + b"\x40" + b"\0" * 70)
    assert (got.error_code, bytes(got.records)) == (ErrorCode.CORRUPT_MESSAGE, b"")


# Behind the proxy


async def test_filters_work_behind_the_proxy_and_are_counted(serve_proxy: Serve) -> None:
    upstream = Upstream()
    upstream.handlers[ApiKey.HEARTBEAT] = lambda received: HeartbeatResponse(throttle_time_ms=5)
    named = [Named("first", Marks()), Named("refuses", Refuses())]
    async with serve_proxy(upstream, filters=named) as running:
        assert (await running.call(HEARTBEAT, 4)).throttle_time_ms == 51
        received: Any = upstream.requests[-1].request
        assert received.member_id == "ma"
        refused = (await running.call(DeleteTopicsRequest(topic_names=["t"]), 5)).responses
        assert refused[0].error_code == ErrorCode.POLICY_VIOLATION
        assert (await running.call(MetadataRequest(topics=[]), 12)).brokers
        families = {it.metric.name: dict(it.samples) async for it in running.proxy.metrics.families(1)}
    assert families["ottla_proxy_filter_calls_total"]["first",] == 2
    assert families["ottla_proxy_filter_refusals_total"] == {("refuses",): 1}


async def test_early_answers_keep_their_place(serve_proxy: Serve) -> None:
    upstream = Upstream()
    async with serve_proxy(upstream, filters=[Named("answers", Answers())]) as running:
        upstream.by_hand = True
        client = await running.connect()
        first = await client.send(MetadataRequest(topics=[]), 12)
        second = await client.send(HEARTBEAT, 4)
        behind = await upstream.connections.receive()
        received = await behind.next()
        from tests.client.brokers import answer

        await behind.send(answer(received, upstream.metadata()))
        assert (await client.receive(ApiKey.METADATA, 12))[0] == first
        correlation_id, response = await client.receive(ApiKey.HEARTBEAT, 4)
        assert (correlation_id, response.error_code) == (second, ErrorCode.REBALANCE_IN_PROGRESS)


async def test_a_filter_may_have_a_state_for_each_connection(serve_proxy: Serve) -> None:
    async with serve_proxy(Upstream(), filters=[Named("counts", Counts())]) as running:
        client, other = await running.connect(), await running.connect()
        assert [(await client.call(HEARTBEAT, 4)).throttle_time_ms for _ in range(3)] == [1, 2, 3]
        assert (await other.call(HEARTBEAT, 4)).throttle_time_ms == 1


@pytest.mark.parametrize("fails", [FailsForOne(), AnswersNonsense()])
async def test_a_filter_that_fails_ends_one_connection_and_not_the_proxy(
    fails: Filter, serve_proxy: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    upstream = Upstream()
    upstream.handlers[ApiKey.HEARTBEAT] = lambda received: HeartbeatResponse()
    async with serve_proxy(upstream, filters=[Named("fails", fails)]) as running:
        client = await running.connect()
        with trio.fail_after(10), pytest.raises((EOFError, trio.BrokenResourceError)):
            await client.call(MetadataRequest(topics=[]), 12)
        other = await running.connect()
        assert (await other.call(HEARTBEAT, 4)).error_code == ErrorCode.NONE
    assert "Traceback" in caplog.text


async def test_records_are_filtered_in_versions_that_name_topics(serve_proxy: Serve) -> None:
    upstream, leader = Upstream(), Leader()
    upstream.handlers[ApiKey.PRODUCE] = lambda received: leader(received.request)
    async with serve_proxy(upstream, filters=[Named("upper", Upper())]) as running:
        from ottla.kproto.messages.cluster.api_versions import ApiVersionsRequest

        listed = (await running.call(ApiVersionsRequest(), 2)).api_keys
        offered = {it.api_key: (it.min_version, it.max_version) for it in listed}
        assert offered[ApiKey.PRODUCE] == (3, 12)
        assert offered[ApiKey.FETCH] == (4, 12)
        assert ApiKey.SHARE_FETCH not in offered
        await running.call(produce(batch(b"a"), batch(b"b" * 100_000)), 12)
        assert [record.value for record in iter_records(leader.stored["t", 0])] == [b"A"]
        assert [record.value for record in iter_records(leader.stored["t", 1])] == [b"B" * 100_000]


# The configuration


def test_filters_are_made_of_their_tables() -> None:
    made = make_filters([{"type": "tests.proxy.filters.test_filters:Upper", "topics": "a.*", "name": "shout"}])
    assert [it.name for it in made] == ["shout"]
    assert isinstance(made[0].filter, RecordFilter)
    assert made[0].filter.concerns("ab")
    assert not made[0].filter.concerns("b")


@pytest.mark.parametrize(
    ("tables", "sentence"),
    [
        ({}, "filter: write each filter as a table"),
        ([{}], "filter 1 has no type: write type = one of "),
        ([{"type": "nothing"}], "filter 1: there is no filter 'nothing'; known are "),
        ([{"type": "no.such.module:Class"}], "filter 1: no.such.module:Class cannot be imported: No module named 'no'"),
        ([{"type": "ottla.proxy.filters.filter:Nothing"}], "filter 1: ottla.proxy.filters.filter has no Nothing"),
        ([{"type": "ottla.proxy.errors:ProxyError"}], "filter 1: ottla.proxy.errors:ProxyError is not a filter"),
        ([{"type": "faults"}], "filter 1 (faults): the option 'rules' is missing"),
        (
            [{"type": "faults", "rules": [], "rule": 1}],
            "filter 1 (faults): there is no option 'rule'; its options are rules",
        ),
        ([{"type": "faults", "rules": 1}], "filter 1 (faults): rules: write them as tables"),
        (
            [{"type": "faults", "rules": [{"api": "Fetch"}]}],
            "filter 1 (faults): a rule does nothing: write one of error",
        ),
        ([{"type": "faults", "rules": [{"eror": 1}]}], "filter 1 (faults): a rule has no 'eror'; known are after, api"),
        ([{"type": "faults", "rules": [{"api": "Fech", "drop": True}]}], "api: Kafka has no 'Fech'"),
        ([{"type": "faults", "rules": [{"error": "OOPS"}]}], "error: Kafka has no 'OOPS'"),
        ([{"type": "faults", "rules": [{"drop": True, "share": "x"}]}], "share: 'x' is not a number of 0 or more"),
        (
            [{"type": "faults", "rules": [{"drop": True, "client-id": "("}]}],
            "client-id: '(' is not a regular expression",
        ),
        ([{"type": "tenants"}], "filter 1 (tenants): write one of prefix, by-address and by-principal"),
        (
            [{"type": "tenants", "by-principal": {"alice": "a."}}],
            "by-principal: 'alice' is not a principal: write User:alice",
        ),
        ([{"type": "tenants", "by-principal": 5}], "by-principal: write it as a table"),
        ([{"type": "tenants", "prefix": "a.", "listeners": "("}], "listeners: '(' is not a regular expression"),
        ([{"type": "tenants", "prefix": "a b"}], "'a b' is not a prefix"),
        ([{"type": "tenants", "by-address": {"x": "a."}}], "'x' is not a network"),
        (
            [{"type": "tenants", "by-address": {"10.0.0.1": "team", "10.0.0.2": "team-a."}}],
            "the tenant 'team' would see what belongs to 'team-a.': end prefixes with a dot",
        ),
        ([{"type": "tenants", "prefix": "a."}] * 2, "filter 2: 'tenants' is already taken"),
    ],
)
def test_what_a_table_may_not_say(tables: Any, sentence: str) -> None:
    with pytest.raises(ProxyError) as caught:
        make_filters(tables)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_package_brings_filters_by_entry_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "shop-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shop\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[ottla.proxy.filters]\nno-cards = shop_filters:NoCards\ngone = shop_filters:Gone\n"
    )
    (tmp_path / "shop_filters.py").write_text(
        "from ottla.proxy.filters.filter import Filter\n"
        "class NoCards(Filter):\n"
        "    def __init__(self, *, digits: int = 16) -> None:\n"
        "        self.digits = digits\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    (named,) = make_filters([{"type": "no-cards", "digits": 13}])
    assert (named.name, named.filter.digits) == ("no-cards", 13)  # type: ignore[attr-defined]
    for kind, sentence in (("gone", "shop_filters has no Gone"), ("x", "there is no filter 'x'; known are audit, ")):
        with pytest.raises(ProxyError, match=sentence):
            make_filters([{"type": kind}])


def test_a_filter_sees_whom_its_scope_includes() -> None:
    """`listeners` and `principals` are taken by every filter's table."""
    table = {"type": "limits", "refused-apis": ["Heartbeat"], "listeners": "broker-.*", "principals": "User:(a|b)"}
    filters = Filters(make_filters([table]))

    def sees(listener: str, principal: str) -> bool:
        return ApiKey.HEARTBEAT in Chain(filters, Client("p", listener, principal), Metrics()).requests

    assert sees("broker-1", "User:a")
    assert not sees("bootstrap", "User:a")
    assert not sees("broker-1", "User:abc")


# Faults


def fault(**rule: Any) -> Filter:
    return make_filters([{"type": "faults", "rules": [rule]}])[0].filter


def test_a_fault_strikes_so_many_times_behind_so_many_requests() -> None:
    rule = fault(api="Heartbeat", error="REBALANCE_IN_PROGRESS", times=2, after=1)
    codes = [run_filter(rule, HEARTBEAT).error_code for _ in range(5)]  # type: ignore[attr-defined]
    assert codes == [0, 27, 27, 0, 0]


def test_a_fault_strikes_a_topic_a_client_and_a_share() -> None:
    rule = fault(api="Produce", error="NOT_ENOUGH_REPLICAS", topic="orders")
    assert run_filter(rule, produce(b"", topic="others"), Leader()).responses[0].partition_responses[0].error_code == 0  # type: ignore[attr-defined]
    assert run_filter(rule, produce(b"", topic="orders")).responses[0].partition_responses[0].error_code == 19  # type: ignore[attr-defined]
    rule = fault(error="REQUEST_TIMED_OUT", **{"client-id": "flaky-.*"})
    assert run_filter(rule, HEARTBEAT, client_id="sound").error_code == 0  # type: ignore[attr-defined]
    assert run_filter(rule, HEARTBEAT, client_id="flaky-7").error_code == 7  # type: ignore[attr-defined]
    rule = fault(error="REQUEST_TIMED_OUT", share=0.5)
    struck = sum(run_filter(rule, HEARTBEAT).error_code == 7 for _ in range(100))  # type: ignore[attr-defined]
    assert 25 < struck < 75


def test_a_fault_drops_a_request_or_loses_its_answer() -> None:
    asked: list[Any] = []
    with pytest.raises(RefusedError, match="which a fault drops"):
        run_filter(fault(drop=True), HEARTBEAT, asked.append)  # type: ignore[arg-type]
    assert asked == []

    def upstream(request: Any) -> HeartbeatResponse:
        asked.append(request)
        return HeartbeatResponse()

    with pytest.raises(RefusedError, match="which a fault loses"):
        run_filter(fault(**{"lose-answer": True}), HEARTBEAT, upstream)
    assert len(asked) == 1


# Limits


def limits(**options: Any) -> Filter:
    return make_filters([{"type": "limits", **options}])[0].filter


def test_records_beyond_a_size_are_refused() -> None:
    one = limits(topics="small-.*", **{"max-record-bytes": 10})
    leader = Leader()
    answer: Any = run_filter(one, produce(batch(b"9 bytes .."[:9]), batch(b"ten bytes!"), topic="small-1"), leader)
    codes = {it.index: it.error_code for it in answer.responses[0].partition_responses}
    assert codes == {0: 0, 1: ErrorCode.MESSAGE_TOO_LARGE}
    run_filter(one, produce(batch(b"ten bytes!"), topic="large"), leader)
    assert leader.stored.keys() == {("small-1", 0), ("large", 0)}


def test_topics_of_too_many_partitions_and_whole_apis_are_refused() -> None:
    from ottla.kproto.messages.topics.create_topics import CreatableTopic, CreateTopicsRequest

    one = limits(**{"max-partitions": 3, "refused-apis": ["DeleteTopics"]})
    refused: Any = run_filter(one, CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=4)]))
    assert refused.topics[0].error_code == ErrorCode.POLICY_VIOLATION
    assert refused.topics[0].error_message == "at most 3 partitions for each topic"
    passed: Any = run_filter(one, CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=3)]))
    assert passed.topics == []
    refused = run_filter(one, DeleteTopicsRequest(topic_names=["t"]), version=5)
    assert refused.responses[0].error_code == ErrorCode.POLICY_VIOLATION
    assert ApiKey.PRODUCE not in one.requests() | one.responses()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"max-partitions": -1}, "max-partitions: -1 is not a whole number above 0"),
        ({"refused-apis": "DeleteTopics"}, "refused-apis: write a list"),
        ({"refused-apis": ["Nothing"]}, "Kafka has no 'Nothing'"),
    ],
)
def test_limits_that_are_none(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ProxyError, match=sentence):
        limits(**options)
