"""The declaration of an API, in its handler's module: `API = Api(ApiKey.…, …)`, beside its `handle`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from ottla.kproto import codec
from ottla.server.request_metrics import ErrorCounter, error_counter

if TYPE_CHECKING:
    from ottla.kproto.api_keys import ApiKey
    from ottla.kproto.codec import Buffer, Part
    from ottla.kproto.schema import Request, Response
    from ottla.server.apis.rules import Rule


@dataclass(frozen=True, kw_only=True, slots=True)
class Codec:
    """The parser of an API's requests and builder of its responses."""

    parse: Callable[[int, Buffer, int], Request]
    parse_in_steps: Callable[[int, Buffer, int, codec.Begun], codec.Steps[Any]]
    build_parts: Callable[[Any, int], Sequence[Part]]
    build_in_steps: Callable[[Any, int], codec.Steps[Sequence[Part]]]
    #: Parses a request that has few elements though it is large; None if it has more, or is not to be parsed.
    parse_lone: Callable[[int, Buffer, int], Request | None]


@dataclass(frozen=True, slots=True)
class Api:
    """One served API. It has no other declaration: what serves requests, checks rights, counts or documents reads this.

    The module lies in a folder of `ottla.server.apis` and is named like the API; so it is found, and it is imported
    with the first request.
    """

    key: ApiKey
    #: What its sender must be allowed to do (`ottla.server.apis.rules`).
    rule: Rule
    #: A connection may have several of these requests under way.
    pipelined: bool = False
    #: An answer may have to wait for others: for replicas, records, members of a group.
    may_wait: bool = False
    #: Brokers of Kafka forward it to the controller: answered by what is committed (`ottla.server.apis.forwarded`).
    forwarded: bool = False
    #: Forwarded, and answered by the end of its `timeout_ms`.
    timed: bool = False
    #: It changes the metadata, of which one request may change so much and no more.
    changes_metadata: bool = False
    #: Its own codec, where the general one is too slow.
    codec: Codec | None = None
    #: Counts the errors of a response, where the general way is too slow or counts otherwise than Kafka.
    count_errors: ErrorCounter | None = None

    def error_counter(self) -> ErrorCounter:
        """Counts the errors that a response tells."""
        return self.count_errors or error_counter(self.key)


def general_codec(
    key: ApiKey,
    *,
    build_parts: Callable[[Any, int], Sequence[Part]] | None = None,
    build_in_steps: Callable[[Any, int], codec.Steps[Sequence[Part]]] | None = None,
) -> Codec:
    """A codec made of an API's schema; the functions that are given replace those that build responses."""
    return Codec(
        parse=partial(codec.parse_request, key),
        parse_in_steps=partial(codec.parse_request_in_steps, key),
        build_parts=build_parts or _build_whole,
        build_in_steps=build_in_steps or codec.build_in_steps,
        parse_lone=_no_request,
    )


def _no_request(_version: int, _buf: Buffer, _pos: int) -> None:
    return None


def _build_whole(response: Response, version: int) -> Sequence[Part]:
    # One send of many small pieces costs more than joining them.
    return [codec.build(response, version)]
