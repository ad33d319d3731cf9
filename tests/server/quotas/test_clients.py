"""Which quota applies to whom, what counts against it, and what a client beyond it is told."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.messages.access.sasl_handshake import SaslHandshakeResponse
from ottla.kproto.messages.data.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, ReplicaState
from ottla.kproto.messages.data.produce import ProduceResponse
from ottla.kproto.messages.topics.create_topics import CreateTopicsResponse
from ottla.kproto.messages.topics.metadata import MetadataResponse
from ottla.kproto.messages.transactions.write_txn_markers import WriteTxnMarkersResponse
from ottla.metadata.errors import ThrottlingQuotaExceededError
from ottla.server.quotas.clients import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    MAX_RATES,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    ClientQuotas,
)

ANN = "User:ann"


class TestWhichQuota:
    @pytest.mark.parametrize("winner", range(1, 9))
    async def test_the_most_specific_one(self, winner: int, autojump_clock: MockClock) -> None:
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
        assert found.throttle_seconds(PRODUCER_BYTE_RATE, ANN, "c", 1.0) == pytest.approx(1 / winner)

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
        quotas.set_quotas({(("user", "ann"),): {CONTROLLER_MUTATION_RATE: 1.0}})
        assert not quotas.is_active
        for kind in (CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE):
            quotas.set_quotas({(("user", "ann"),): {kind: 1.0}})
            assert quotas.is_active


class Connection:
    def __init__(self) -> None:
        self.muted_seconds = 0.0

    def mute(self, seconds: float) -> None:
        self.muted_seconds = seconds


def context(key: ApiKey, request_bytes: int = 0, *, worked_seconds: float = 0.0, **options: Any) -> Any:
    return SimpleNamespace(
        api=SimpleNamespace(key=key),
        header=SimpleNamespace(client_id="c", api_version=options.get("version", 0)),
        principal=ANN,
        measurement=SimpleNamespace(
            request_bytes=request_bytes, worked_seconds=worked_seconds - options.get("remote_seconds", 0.0)
        ),
        connection=Connection(),
        request=options.get("request", FetchRequest()),
    )


class TestCharging:
    @pytest.fixture
    def quotas(self) -> ClientQuotas:
        quotas = ClientQuotas()
        quotas.set_quotas({(("user", "ann"),): {PRODUCER_BYTE_RATE: 100.0, CONSUMER_BYTE_RATE: 100.0}})
        return quotas

    async def test_a_producer_is_told_and_its_connection_rests(
        self, quotas: ClientQuotas, autojump_clock: MockClock
    ) -> None:
        request = context(ApiKey.PRODUCE, 2000)
        response = ProduceResponse()
        assert quotas.charge(request, response, 50) is response
        assert (response.throttle_time_ms, request.connection.muted_seconds) == (10_000, pytest.approx(10.0))

    async def test_a_producer_without_answers_rests_too(self, quotas: ClientQuotas, autojump_clock: MockClock) -> None:
        request = context(ApiKey.PRODUCE, 2000)
        assert quotas.charge(request, None, 0) is None
        assert request.connection.muted_seconds == pytest.approx(10.0)

    async def test_a_consumer_gets_no_records_and_they_do_not_count(
        self, quotas: ClientQuotas, autojump_clock: MockClock
    ) -> None:
        request = context(ApiKey.FETCH, request=FetchRequest(session_id=7, session_epoch=1))
        full = FetchResponse(session_id=7, responses=[FetchableTopicResponse(topic="t")])
        throttled = quotas.charge(request, full, 2000)
        assert quotas.throttles[CONSUMER_BYTE_RATE].count == 1
        assert quotas.throttles[CONSUMER_BYTE_RATE].seconds == pytest.approx(10.0)
        assert isinstance(throttled, FetchResponse)
        assert (throttled.session_id, throttled.responses, throttled.throttle_time_ms) == (7, [], 10_000)
        assert quotas.charge(context(ApiKey.FETCH), full, 900) is None

    async def test_a_consumer_without_records_has_no_new_session(
        self, quotas: ClientQuotas, autojump_clock: MockClock
    ) -> None:
        for asked in (0, 5):
            request = context(ApiKey.FETCH, request=FetchRequest(session_id=asked, session_epoch=0))
            throttled = quotas.charge(request, FetchResponse(session_id=7), 2000)
            assert isinstance(throttled, FetchResponse)
            assert throttled.session_id == 0

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

    async def test_followers_are_exempt(self, quotas: ClientQuotas) -> None:
        for request in (FetchRequest(replica_id=2), FetchRequest(replica_state=ReplicaState(replica_id=2))):
            assert quotas.charge(context(ApiKey.FETCH, request=request), FetchResponse(), 1 << 20) is None

    async def test_markers_of_transactions_are_exempt(self, quotas: ClientQuotas) -> None:
        quotas.set_quotas({(("user", None),): {REQUEST_PERCENTAGE: 1.0}})
        request = context(ApiKey.WRITE_TXN_MARKERS, worked_seconds=100.0)
        assert quotas.charge(request, WriteTxnMarkersResponse(), 10) is None
        assert request.connection.muted_seconds == 0


class TestTime:
    @pytest.fixture
    def quotas(self) -> ClientQuotas:
        quotas = ClientQuotas()
        quotas.set_quotas({(("user", None),): {REQUEST_PERCENTAGE: 50.0}})
        return quotas

    async def test_a_client_that_takes_too_much_of_it_rests_for_one_window_at_most(self, quotas: ClientQuotas) -> None:
        # 50 % of the 10 seconds that a rate is taken over are 5 seconds.
        assert quotas.charge(context(ApiKey.METADATA, worked_seconds=4.9), MetadataResponse(), 10) is None
        request = context(ApiKey.METADATA, worked_seconds=100.0)
        response = MetadataResponse()
        assert quotas.charge(request, response, 10) is response
        assert (response.throttle_time_ms, request.connection.muted_seconds) == (1000, 1.0)
        assert quotas.throttles[REQUEST_PERCENTAGE].count == 1

    async def test_waiting_for_others_does_not_count(self, quotas: ClientQuotas) -> None:
        request = context(ApiKey.FETCH, worked_seconds=100.0, remote_seconds=99.9)
        assert quotas.charge(request, FetchResponse(), 10) is None

    async def test_a_response_that_cannot_say_it_stays_and_the_connection_rests(self, quotas: ClientQuotas) -> None:
        request = context(ApiKey.SASL_HANDSHAKE, worked_seconds=100.0)
        response = SaslHandshakeResponse()
        assert quotas.charge(request, response, 10) is response
        assert request.connection.muted_seconds == 1.0

    async def test_the_longer_of_two_throttle_times_is_told(
        self, quotas: ClientQuotas, autojump_clock: MockClock
    ) -> None:
        quotas.set_quotas({(("user", "ann"),): {REQUEST_PERCENTAGE: 50.0, PRODUCER_BYTE_RATE: 100.0}})
        response = ProduceResponse()
        quotas.charge(context(ApiKey.PRODUCE, 2000, worked_seconds=100.0), response, 50)
        assert response.throttle_time_ms == 10_000


class TestMutations:
    @pytest.fixture
    def quotas(self) -> ClientQuotas:
        quotas = ClientQuotas(controller_windows=5, controller_window_seconds=2.0)
        quotas.set_quotas({(("user", None),): {CONTROLLER_MUTATION_RATE: 3.0}})
        return quotas

    async def test_what_was_saved_up_may_be_spent_at_once_and_overdrawn(
        self, quotas: ClientQuotas, autojump_clock: MockClock
    ) -> None:
        request = context(ApiKey.CREATE_TOPICS, version=6)
        quota = quotas.mutation_quota(request, strict_from=6)
        quota.take("a", 29)
        quota.take("b", 13)  # 30 were there
        with pytest.raises(ThrottlingQuotaExceededError):
            quota.take("c", 1)
        assert quota.throttle_seconds == pytest.approx(4.0)
        response = CreateTopicsResponse()
        quotas.settle(quota, request, response)
        assert (response.throttle_time_ms, request.connection.muted_seconds) == (4000, pytest.approx(4.0))
        await trio.sleep(4.01)
        quotas.mutation_quota(request, strict_from=6).take("c", 1)

    async def test_an_old_client_is_not_refused_but_rests(
        self, quotas: ClientQuotas, autojump_clock: MockClock
    ) -> None:
        request = context(ApiKey.CREATE_TOPICS, version=5)
        quota = quotas.mutation_quota(request, strict_from=6)
        quota.take("a", 33)
        quota.take("b", 3)
        assert quota.throttle_seconds == pytest.approx(2.0)

    async def test_a_change_that_is_tried_again_counts_once(self, quotas: ClientQuotas) -> None:
        quota = quotas.mutation_quota(context(ApiKey.CREATE_TOPICS, version=7), strict_from=6)
        for _ in range(10):
            quota.take("a", 30)
        assert quota.throttle_seconds == 0.0

    async def test_without_a_quota_everything_goes(self) -> None:
        quotas = ClientQuotas()
        request = context(ApiKey.CREATE_TOPICS, version=7)
        quota = quotas.mutation_quota(request, strict_from=6)
        quota.take("a", 1_000_000)
        response = CreateTopicsResponse()
        quotas.settle(quota, request, response)
        assert (response.throttle_time_ms, request.connection.muted_seconds) == (0, 0.0)
