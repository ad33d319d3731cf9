"""Client quotas: what a user or client id may send, fetch, take of the broker's time and change of the metadata.

- `producer_byte_rate`, `consumer_byte_rate`: bytes a second (KIP-13)
- `request_percentage`: the share of one core's time that goes into its requests (KIP-124)
- `controller_mutation_rate`: partitions created and deleted a second (KIP-599)

A client beyond its quota is answered at once, with the time by which it is ahead, and its connection is not read for
that long; a Fetch beyond it is answered without records, which the client asks for again. Rates and throttle times are
those of Kafka's Rate, TokenBucket and QuotaUtils.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Mapping
from math import inf
from typing import TYPE_CHECKING, Any, Final, Protocol

import trio

from ottla.kproto.api_keys import ApiKey
from ottla.metadata.errors import ThrottlingQuotaExceededError
from ottla.metadata.image import CLIENT_ID, USER
from ottla.server.quotas.rates import Rate, TokenBucket

if TYPE_CHECKING:
    from ottla.kproto.headers import RequestHeader
    from ottla.kproto.schema import Request, Response
    from ottla.metadata.image import MetadataDelta, QuotaEntity

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
KINDS: Final = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE)

#: How many rates are kept; beyond that the least recently used one is forgotten, and starts over at zero.
MAX_RATES: Final = 10_000

_BYTE_RATE_OF: Final = {
    ApiKey.PRODUCE: PRODUCER_BYTE_RATE,
    ApiKey.FETCH: CONSUMER_BYTE_RATE,
    ApiKey.SHARE_FETCH: CONSUMER_BYTE_RATE,
}


class Throttle:
    """How often one kind of quota has made clients wait, and for how long in total."""

    __slots__ = ("count", "seconds")

    def __init__(self) -> None:
        self.count = 0
        self.seconds = 0.0

    def add(self, seconds: float) -> None:
        self.count += 1
        self.seconds += seconds


class _ServedApi(Protocol):
    @property
    def key(self) -> ApiKey: ...


class _Mutable(Protocol):
    def mute(self, seconds: float) -> None: ...


class _Measured(Protocol):
    request_bytes: int

    @property
    def worked_seconds(self) -> float: ...


class QuotaContext(Protocol):
    """The parts of a request that quotas need: its client, its cost, and the connection to mute."""

    header: RequestHeader
    request: Request | None

    @property
    def measurement(self) -> _Measured: ...
    @property
    def api(self) -> _ServedApi: ...
    @property
    def connection(self) -> _Mutable: ...
    @property
    def principal(self) -> str: ...


class MutationQuota:
    """The quota of one request's changes of the metadata.

    A strict one refuses what comes while the bucket is overdrawn; the other, for clients that do not know the error,
    lets it through and only makes the connection rest.
    """

    __slots__ = ("_bucket", "_is_strict", "_quota", "_taken", "throttle_seconds")

    def __init__(self, bucket: TokenBucket | None, quota: float, *, is_strict: bool) -> None:
        self._bucket = bucket
        self._quota = quota
        self._is_strict = is_strict
        self._taken: set[Hashable] = set()
        #: How long the client has to wait because of this request.
        self.throttle_seconds = 0.0

    def take(self, key: Hashable, partitions: int) -> None:
        """Count partitions that are created or deleted; once for a key, however often a change is tried.

        Raises ThrottlingQuotaExceededError.
        """
        if self._bucket is None or key in self._taken:
            return
        now = trio.current_time()
        if self._is_strict:
            self.throttle_seconds = max(self.throttle_seconds, self._bucket.throttle_seconds(self._quota, now))
            if self.throttle_seconds:
                raise ThrottlingQuotaExceededError("The throttling quota has been exceeded.")
            self._bucket.take(partitions, self._quota, now)
        else:
            self._bucket.take(partitions, self._quota, now)
            self.throttle_seconds = self._bucket.throttle_seconds(self._quota, now)
        self._taken.add(key)


class ClientQuotas:
    """The rates of all clients against the quotas of the cluster's metadata, which `apply` follows."""

    def __init__(
        self,
        windows: int = 11,
        window_seconds: float = 1.0,
        *,
        controller_windows: int = 11,
        controller_window_seconds: float = 1.0,
    ) -> None:
        self._windows = windows
        self._window_seconds = window_seconds
        self._controller_windows = controller_windows
        self._controller_window_seconds = controller_window_seconds
        self._quotas: Mapping[QuotaEntity, Mapping[str, float]] = {}
        self._kinds: frozenset[str] = frozenset()
        self._rates: OrderedDict[tuple[str, QuotaEntity], Rate | TokenBucket] = OrderedDict()
        #: By kind of quota.
        self.throttles = {kind: Throttle() for kind in KINDS}
        #: False as long as neither bytes nor time are limited, so that requests need not be counted.
        self.is_active = False

    async def apply(self, delta: MetadataDelta) -> None:
        """Follow the cluster's metadata."""
        if delta.quotas_changed:
            self.set_quotas(delta.after.quotas)

    def set_quotas(self, quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        """Replace all quotas; rates that were measured stay."""
        self._quotas = quotas
        self._kinds = frozenset(key for values in quotas.values() for key in values)
        self.is_active = not self._kinds.isdisjoint((PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE))
        if self._kinds.isdisjoint(KINDS):
            self._rates.clear()

    # Requests -------------------------------------------------------------------------------------------------------

    def charge(self, context: QuotaContext, response: Response | None, sent_bytes: int) -> Response | None:
        """Count an answered request. Returns the response to send instead, if its client is beyond a quota.

        A Produce counts with the bytes of its request, a Fetch and a ShareFetch with those of their responses, and
        every request with the time that was worked on it. What a ShareFetch has acquired is sent all the same: it is
        the member's, and nobody else would get it until its lock ends. Followers are exempt, and so are the markers of
        transactions, as in Kafka.
        """
        api = context.api.key
        if api is ApiKey.WRITE_TXN_MARKERS or (api is ApiKey.FETCH and _is_from_follower(context.request)):
            return None
        client = context.principal, context.header.client_id or ""
        kind = _BYTE_RATE_OF.get(api)
        amount = context.measurement.request_bytes if kind == PRODUCER_BYTE_RATE else sent_bytes
        by_bytes = self.throttle_seconds(kind, *client, amount) if kind is not None else 0.0
        by_time = self._throttle_by_time(context, *client)
        seconds = max(by_bytes, by_time)
        if not seconds:
            return None
        self.throttles[kind if kind is not None and by_bytes >= by_time else REQUEST_PERCENTAGE].add(seconds)
        context.connection.mute(seconds)
        if response is None:
            return None
        if api is ApiKey.FETCH:
            self._take_back(CONSUMER_BYTE_RATE, *client, amount)
            response = _without_records(context.request, response)
        _set_throttle_time(response, seconds)
        return response

    def most_fetched_bytes(self, context: QuotaContext) -> float:
        """The largest answer that a consumer's quota can let through; a larger one would come back empty each time."""
        found = self._find(CONSUMER_BYTE_RATE, context.principal, context.header.client_id or "")
        return inf if found is None else found[0] * (self._windows - 1) * self._window_seconds

    def throttle_seconds(self, kind: str, principal: str, client_id: str, amount: float) -> float:
        """Count an amount for a client and return by how many seconds it is ahead of its quota."""
        found = self._find(kind, principal, client_id)
        if found is None:
            return 0.0
        quota, sharing = found
        now = trio.current_time()
        rate = self._rate(kind, sharing)
        rate.record(amount, now)
        return rate.throttle_seconds(quota, now)

    def throttle_seconds_by_time(self, principal: str, client_id: str, seconds: float) -> float:
        """The same for time that was worked on requests. Bounded by one window, because the time is spent already."""
        if REQUEST_PERCENTAGE not in self._kinds:
            return 0.0
        ahead = self.throttle_seconds(REQUEST_PERCENTAGE, principal, client_id, seconds * 100)
        return min(ahead, self._window_seconds)

    def _throttle_by_time(self, context: QuotaContext, principal: str, client_id: str) -> float:
        return self.throttle_seconds_by_time(principal, client_id, context.measurement.worked_seconds)

    def _take_back(self, kind: str, principal: str, client_id: str, amount: float) -> None:
        found = self._find(kind, principal, client_id)
        if found is not None:
            self._rate(kind, found[1]).record(-amount, trio.current_time())

    # Changes of the metadata ----------------------------------------------------------------------------------------

    def mutation_quota(self, context: QuotaContext, *, strict_from: int) -> MutationQuota:
        """The quota of a request's changes; from version `strict_from` on, clients know the error that refuses them."""
        is_strict = context.header.api_version >= strict_from
        found = self._find(CONTROLLER_MUTATION_RATE, context.principal, context.header.client_id or "")
        if found is None:
            return MutationQuota(None, 0, is_strict=is_strict)
        quota, sharing = found
        key = (CONTROLLER_MUTATION_RATE, sharing)
        bucket = self._kept(key) or self._keep(
            key, TokenBucket(self._controller_windows, self._controller_window_seconds)
        )
        assert isinstance(bucket, TokenBucket)
        return MutationQuota(bucket, quota, is_strict=is_strict)

    def settle(self, quota: MutationQuota, context: QuotaContext, response: Response) -> None:
        """Tell the client how long to wait because of its changes, and do not read its connection for that long."""
        if quota.throttle_seconds:
            self.throttles[CONTROLLER_MUTATION_RATE].add(quota.throttle_seconds)
            context.connection.mute(quota.throttle_seconds)
            _set_throttle_time(response, quota.throttle_seconds)

    # ----------------------------------------------------------------------------------------------------------------

    def _find(self, kind: str, principal: str, client_id: str) -> tuple[float, QuotaEntity] | None:
        """The quota that applies to a client, and who shares it."""
        if kind not in self._kinds:
            return None
        _, _, user = principal.partition(":")
        for entity, sharing in _entities(user, client_id):
            quota = self._quotas.get(entity, {}).get(kind)
            if quota is not None:
                return quota, sharing
        return None

    def _rate(self, kind: str, sharing: QuotaEntity) -> Rate:
        key = (kind, sharing)
        rate = self._kept(key) or self._keep(key, Rate(self._windows, self._window_seconds))
        assert isinstance(rate, Rate)
        return rate

    def _kept(self, key: tuple[str, QuotaEntity]) -> Rate | TokenBucket | None:
        rate = self._rates.get(key)
        if rate is not None:
            self._rates.move_to_end(key)
        return rate

    def _keep(self, key: tuple[str, QuotaEntity], rate: Rate | TokenBucket) -> Rate | TokenBucket:
        if len(self._rates) >= MAX_RATES:
            self._rates.popitem(last=False)
        self._rates[key] = rate
        return rate


def _without_records(request: Any, response: Any) -> Response:
    """The answer to a Fetch beyond the quota: a session goes on with it, and none begins (`FetchContext.keep`)."""
    empty: Any = type(response)()
    if response.session_id == request.session_id:
        empty.session_id = response.session_id
    return empty  # type: ignore[no-any-return]


def _set_throttle_time(response: Any, seconds: float) -> None:
    """Raise the throttle time of a response to this, if its API has one."""
    present_ms = getattr(response, "throttle_time_ms", None)
    if present_ms is not None:
        response.throttle_time_ms = max(present_ms, int(seconds * 1000 + 0.5))


def _is_from_follower(request: Any) -> bool:
    return bool(request.replica_id >= 0 or request.replica_state.replica_id >= 0)


def _entities(user: str, client_id: str) -> Iterable[tuple[QuotaEntity, QuotaEntity]]:
    """The entities whose quota may apply, the first that has one does; each with who shares its rate."""
    both = ((CLIENT_ID, client_id), (USER, user))
    yield both, both
    yield ((CLIENT_ID, None), (USER, user)), both
    yield ((USER, user),), ((USER, user),)
    yield ((CLIENT_ID, client_id), (USER, None)), both
    yield ((CLIENT_ID, None), (USER, None)), both
    yield ((USER, None),), ((USER, user),)
    yield ((CLIENT_ID, client_id),), ((CLIENT_ID, client_id),)
    yield ((CLIENT_ID, None),), ((CLIENT_ID, client_id),)
