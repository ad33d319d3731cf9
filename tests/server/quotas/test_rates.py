"""How rates and buckets of tokens are measured."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.server.quotas.rates import Rate, TokenBucket


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


def test_a_bucket_begins_full_and_fills_by_the_quota() -> None:
    bucket = TokenBucket(11, 1.0)
    bucket.take(110, 10.0, now=5.0)
    assert bucket.throttle_seconds(10.0, 5.0) == 0.0
    bucket.take(5, 10.0, now=5.0)
    assert bucket.throttle_seconds(10.0, 5.0) == pytest.approx(0.5)
    assert bucket.throttle_seconds(10.0, 5.4) == pytest.approx(0.1)
    assert bucket.throttle_seconds(10.0, 5.5) == 0.0


def test_a_bucket_never_holds_more_than_all_windows_bring() -> None:
    bucket = TokenBucket(2, 1.0)
    bucket.take(1, 10.0, now=0.0)
    bucket.take(25, 10.0, now=1000.0)
    assert bucket.throttle_seconds(10.0, 1000.0) == pytest.approx(0.5)


@given(st.lists(st.tuples(st.floats(0, 5), st.integers(1, 50)), max_size=50))
def test_over_time_no_more_is_let_through_than_the_quota_and_one_bucket(steps: list[tuple[float, int]]) -> None:
    bucket, now, taken, last = TokenBucket(11, 1.0), 0.0, 0, 0
    for pause, amount in steps:
        now += pause
        if not bucket.throttle_seconds(2.0, now):
            bucket.take(amount, 2.0, now)
            taken += amount
            last = amount
        assert taken <= 22 + 2.0 * now + last + 1e-6
