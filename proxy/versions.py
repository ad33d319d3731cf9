"""The APIs and versions that clients are offered: what upstream serves, as far as the proxy can forward it.

A newer API or version might name brokers in a place that is not known here, so nothing is offered that Kafka 4.3 does
not have. Older versions are offered as upstream has them: most frames can be forwarded unread, and what must be read
can be read in every version.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Final, Protocol

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.cluster.api_versions import ApiVersion, ApiVersionsResponse

if TYPE_CHECKING:
    from ottla.kproto.schema import Response

# Version 0 of SaslHandshake is followed by bytes that are not requests and have no correlation ids.
_LOWEST: Final = {ApiKey.SASL_HANDSHAKE: 1}
# If Produce does not begin at version 0, librdkafka thinks that the broker knows no compression.
_OFFERED_FROM_ZERO: Final = frozenset({ApiKey.PRODUCE})


class VersionLimits(Protocol):
    """The versions with which filters can do."""

    def lowest(self, key: ApiKey) -> int: ...
    def highest(self, key: ApiKey) -> int: ...


class Offer:
    """The versions that are forwarded; filters may limit them further."""

    def __init__(
        self,
        limits: VersionLimits,
        *,
        own: Collection[ApiKey] = (),
        hidden: Collection[ApiKey] = (),
    ) -> None:
        """`own` are answered by the proxy, whatever upstream serves; `hidden` are neither offered nor forwarded."""
        self._lowest = {int(key): max(limits.lowest(key), _LOWEST.get(key, 0)) for key in ApiKey}
        self._highest = {int(key): -1 if key in hidden else limits.highest(key) for key in ApiKey}
        self._own = {int(key): key.valid_versions for key in own}

    def includes(self, key: int, version: int) -> bool:
        """Whether a request of this API and version is forwarded."""
        return self._lowest.get(key, 0) <= version <= self._highest.get(key, -1)

    def limit(self, response: ApiVersionsResponse) -> None:
        """Remove the versions from an answer that are not forwarded."""
        kept = []
        for key, served in self._own.items():
            lowest = max(served.lowest, self._lowest[key])
            kept.append(ApiVersion(api_key=key, min_version=lowest, max_version=served.highest))
        for api in response.api_keys:
            key = api.api_key
            if key in self._own:
                continue
            if key not in _OFFERED_FROM_ZERO:
                api.min_version = max(api.min_version, self._lowest.get(key, 0))
            api.max_version = min(api.max_version, self._highest.get(key, -1))
            if api.min_version <= api.max_version:
                kept.append(api)
        response.api_keys = kept


def unsupported() -> Response:
    """The answer to an ApiVersions of an unknown version, in version 0: ask again in one of these (KIP-511)."""
    known = ApiKey.API_VERSIONS.valid_versions
    served = ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=known.lowest, max_version=known.highest)
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[served])


def is_refusal(frame: Any, body_start: int) -> bool:
    """Whether upstream refuses the version: it then answers in version 0."""
    return int.from_bytes(frame[body_start : body_start + 2], "big") == ErrorCode.UNSUPPORTED_VERSION
