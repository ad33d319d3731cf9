"""Rates, throttle times and which quota applies to whom."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.messages.fetch import FetchableTopicResponse, FetchResponse
from ottla.kproto.messages.metadata import MetadataResponse
from ottla.kproto.messages.produce import ProduceResponse
from ottla.server.quota import CONSUMER_BYTE_RATE, MAX_RATES, PRODUCER_BYTE_RATE, ClientQuotas, Rate

ANN = "User:ann"


def test_a_rate_is_over_all_windows_but_one_from_the_beginning() -> None:
    rate = Rate(11, 1.0)
    rate.record(1000, 0.0)
    assert rate.measure(0.0) == (100.0, 10.0)
    assert rate.measure(0.5) == (1000 / 10.5, 10.5)


def test_what_is_older_than_the_windows_is_forgotten() -> None:
    rate = Rate(3, 1.0)
    rate.record(300, 0.0)
    rate.record(100, 2.5)
    assert rate.measure(2.9)[0] == pytest.approx(400 / 2.9)
    assert rate.measure(3.0)[0] == pytest.approx(100 / 2.5)
    assert rate.measure(9.0)[0] == 0.0


def test_the_throttle_time_brings_the_rate_down_to_the_quota() -> None:
    rate = Rate(11, 1.0)
    rate.record(3000, 0.0)
    # 300 a second over 10 s against 100: it takes 20 s more for 3,000 to be 100 a second.
    assert rate.throttle_seconds(100, 0.0) == pytest.approx(20.0)
    assert rate.throttle_seconds(300, 0.0) == 0.0


@given(
    steps=st.lists(st.tuples(st.floats(0, 2), st.integers(0, 10_000)), min_size=1, max_size=50),
    windows=st.integers(2, 12),
)
def test_rates_agree_with_a_list_of_everything_recorded(steps: list[tuple[float, int]], windows: int) -> None:
    rate, now, total = Rate(windows, 1.0), 0.0, 0
    for pause, amount in steps:
        now += pause
        rate.record(amount, now)
        total += amount
        measured, span = rate.measure(now)
        assert windows - 1 <= span <= windows
        assert 0 <= measured * span <= total + 1e-6
        assert (rate.throttle_seconds(1000, now) > 0) == (measured > 1000)
    assert rate.measure(now + windows + 0.001)[0] == 0.0


class TestWhichQuota:
    @pytest.mark.parametrize("winner", range(1, 9))
    async def test_the_most_specific_one(self, winner: int) -> None:
        by_rank = {
            8: (("client-id", "c"), ("user", "ann")),
            7: (("client-id", None), ("user", "ann")),
            6: (("user", "ann"),),
            5: (("client-id", "c"), ("user", None)),
            4: (("client-id", None), ("user", None)),
            3: (("user", None),),
            2: (("client-id", "c"),),
            1: (("client-id", None),),
        }
        found = ClientQuotas()
        found.set_quotas({by_rank[rank]: {PRODUCER_BYTE_RATE: float(rank)} for rank in range(1, winner + 1)})
        # 10 seconds' worth at the winner's rate and one byte more is one byte too many.
        assert found.throttle_seconds(PRODUCER_BYTE_RATE, ANN, "c", winner * 10.0) == 0.0
        assert found.throttle_seconds(PRODUCER_BYTE_RATE, ANN, "c", 1.0) == pytest.approx(1 / winner, rel=1e-3)

    async def test_clients_of_one_user_share_its_quota_and_others_do_not(self) -> None:
        quotas = ClientQuotas()
        quotas.set_quotas({(("user", None),): {PRODUCER_BYTE_RATE: 100.0}})
        assert quotas.throttle_seconds(PRODUCER_BYTE_RATE, ANN, "one", 1000) == 0.0
        assert quotas.throttle_seconds(PRODUCER_BYTE_RATE, ANN, "two", 1000) > 0.0
        assert quotas.throttle_seconds(PRODUCER_BYTE_RATE, "User:bob", "one", 1000) == 0.0

    async def test_produce_and_fetch_are_counted_apart(self) -> None:
        quotas = ClientQuotas()
        quotas.set_quotas({(("user", "ann"),): {PRODUCER_BYTE_RATE: 1.0}})
        assert quotas.throttle_seconds(PRODUCER_BYTE_RATE, ANN, "c", 1000) > 0.0
        assert quotas.throttle_seconds(CONSUMER_BYTE_RATE, ANN, "c", 1000) == 0.0

    async def test_rates_are_bounded(self) -> None:
        quotas = ClientQuotas()
        quotas.set_quotas({(("client-id", None),): {PRODUCER_BYTE_RATE: 1.0}})
        for number in range(MAX_RATES + 10):
            quotas.throttle_seconds(PRODUCER_BYTE_RATE, ANN, f"c{number}", 1)
        assert len(quotas._rates) == MAX_RATES

    def test_other_quotas_need_no_counting(self) -> None:
        quotas = ClientQuotas()
        quotas.set_quotas({(("user", "ann"),): {"request_percentage": 1.0}})
        assert not quotas.is_active
        quotas.set_quotas({(("user", "ann"),): {CONSUMER_BYTE_RATE: 1.0}})
        assert quotas.is_active


class Connection:
    def __init__(self) -> None:
        self.muted_seconds = 0.0

    def mute(self, seconds: float) -> None:
        self.muted_seconds = seconds


def context(key: ApiKey, request_bytes: int = 0) -> Any:
    return SimpleNamespace(
        api=SimpleNamespace(key=key),
        header=SimpleNamespace(client_id="c"),
        principal=ANN,
        frame=bytes(request_bytes),
        connection=Connection(),
    )


class TestCharging:
    @pytest.fixture
    def quotas(self) -> ClientQuotas:
        quotas = ClientQuotas()
        quotas.set_quotas({(("user", "ann"),): {PRODUCER_BYTE_RATE: 100.0, CONSUMER_BYTE_RATE: 100.0}})
        return quotas

    async def test_a_producer_is_told_and_its_connection_rests(self, quotas: ClientQuotas) -> None:
        request = context(ApiKey.PRODUCE, 2000)
        response = ProduceResponse()
        assert quotas.charge(request, response, 50) is response
        assert (response.throttle_time_ms, request.connection.muted_seconds) == (10_000, pytest.approx(10.0))

    async def test_a_producer_without_answers_rests_too(self, quotas: ClientQuotas) -> None:
        request = context(ApiKey.PRODUCE, 2000)
        assert quotas.charge(request, None, 0) is None
        assert request.connection.muted_seconds == pytest.approx(10.0)

    async def test_a_consumer_gets_no_records_and_they_do_not_count(self, quotas: ClientQuotas) -> None:
        request = context(ApiKey.FETCH)
        full = FetchResponse(session_id=7, responses=[FetchableTopicResponse(topic="t")])
        throttled = quotas.charge(request, full, 2000)
        assert isinstance(throttled, FetchResponse)
        assert (throttled.session_id, throttled.responses, throttled.throttle_time_ms) == (7, [], 10_000)
        assert quotas.charge(context(ApiKey.FETCH), full, 900) is None

    async def test_within_the_quota_nothing_happens(self, quotas: ClientQuotas) -> None:
        request = context(ApiKey.PRODUCE, 1000)
        assert quotas.charge(request, ProduceResponse(), 50) is None
        assert request.connection.muted_seconds == 0.0

    async def test_other_requests_do_not_count(self, quotas: ClientQuotas) -> None:
        assert quotas.charge(context(ApiKey.METADATA, 10_000), MetadataResponse(), 10_000) is None

    async def test_time_heals(self, quotas: ClientQuotas, autojump_clock: MockClock) -> None:
        request = context(ApiKey.PRODUCE, 2000)
        quotas.charge(request, ProduceResponse(), 0)
        await trio.sleep(11)
        assert quotas.charge(context(ApiKey.PRODUCE, 1), ProduceResponse(), 0) is None
