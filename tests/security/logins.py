"""Conversations of somebody who does know a password, in every order and without waiting for answers, by a seed.

Handshakes, messages of mechanisms, repeated logins and ordinary requests are sent in bursts. The judge takes the
answers in their order, notes whom they let in, and allows in an ordinary answer only what that principal may have.
Nothing that has been sent counts, however good it is, until it is answered.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from uuid import UUID

import trio

from ottla.client import sasl
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.frames import parse_response_frame
from ottla.kproto.messages.access.sasl_authenticate import SaslAuthenticateRequest
from ottla.kproto.messages.access.sasl_handshake import SaslHandshakeRequest
from ottla.kproto.messages.cluster.api_versions import ApiVersionsRequest
from ottla.kproto.messages.data.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.kproto.messages.topics.metadata import MetadataRequest
from ottla.kproto.schema import Request
from tests.security.handshakes import Conversation, ViolationError

SCRAM: Final = "SCRAM-SHA-256"
PASSWORDS: Final = {"alice": "wonder", "bob": "b-secret"}
TOPICS: Final = {"alice": "secret", "bob": "public"}
"""What each of them may read."""
_MECHANISMS: Final = ("PLAIN", "PLAIN", "PLAIN", SCRAM, SCRAM, SCRAM, "SCRAM-SHA-512", "GSSAPI")
_BURSTS: Final = 6
_BURST: Final = 7
_ORDERLY: Final = 0.25
_PATIENCE_SECONDS: Final = 30.0


class Door(NamedTuple):
    """Where the clients come in."""

    name: str
    port: int
    topic_ids: Mapping[str, UUID]
    has_rights: bool = True
    """Whether upstream knows the clients, and gives each only its own topic."""
    is_stamped: bool = False
    """Whether the answers to Metadata say for whom the proxy's filters took the client (`Stamp`)."""


@dataclass
class Sent:
    """A request without an answer."""

    request: Request
    version: int
    correlation_id: int
    user: str = ""
    is_right: bool = False
    exchange: sasl.Exchange | None = None


class Login(Conversation):
    """One connection's, from the first byte to its end."""

    def __init__(
        self, stream: trio.abc.Stream, choices: random.Random, door: Door, counted: Counter[str]
    ) -> None:  # fmt: skip
        super().__init__(stream, choices, [])
        self._door = door
        self._counted = counted
        self._knows = {"bob"} if choices.random() < 0.5 else set(PASSWORDS)
        self._waiting: deque[Sent] = deque()
        #: The exchange that has got a challenge last, whose it is, and the challenge.
        self._challenged: tuple[sasl.Exchange, str, bytes] | None = None
        # What the answers so far have established.
        self._identity = ""
        self._mechanism = ""
        self._has_failed = False

    async def run(self) -> None:
        """Until somebody has had enough. Raises ViolationError."""
        is_orderly = self._choices.random() < _ORDERLY
        try:
            for number in range(self._choices.randrange(1, _BURSTS)):
                burst = self._orderly(number) if is_orderly else self._burst(number)
                await self._say(burst)
                with trio.move_on_after(_PATIENCE_SECONDS) as scope:
                    while self._waiting:
                        self._judge(await self._frame_in())
                if scope.cancelled_caught:
                    raise ViolationError(f"neither answered nor ended: {self._waiting[0]}")
        except (trio.BrokenResourceError, trio.ClosedResourceError, EOFError):
            if is_orderly:
                raise ViolationError(f"a client in good order is not answered: {list(self._waiting)}") from None
            self._counted["ended"] += 1
        finally:
            await trio.aclose_forcefully(self._stream)

    # What is said

    async def _say(self, burst: list[Sent]) -> None:
        self._waiting += burst
        said = b"".join(self._framed(one) for one in burst)
        cut = self._choices.randrange(len(said) + 1) if self._choices.random() < 0.3 else len(said)
        await self._stream.send_all(said[:cut])
        if cut < len(said):
            await trio.lowlevel.checkpoint()
            await self._stream.send_all(said[cut:])

    def _framed(self, one: Sent) -> bytes:
        frame = self._request(one.request, one.version)
        one.correlation_id = self._correlation_id
        return frame

    def _orderly(self, number: int) -> list[Sent]:
        """A login as clients do it, now and then repeated, though without a pause, and requests behind it."""
        asks = [self._choices.choice([self._metadata, self._fetch])() for _ in range(self._choices.randrange(1, 4))]
        if number and self._choices.random() < 0.5:
            return asks
        login = [self._mechanism_("PLAIN"), self._plain("alice" if "alice" in self._knows else "bob", right=True)]
        return [*([] if number else [self._versions_()]), *login, *asks]

    def _burst(self, number: int) -> list[Sent]:
        burst = [self._versions_()] if not number and self._choices.random() < 0.9 else []
        while len(burst) < _BURST and (not burst or self._choices.random() < 0.75):
            burst += self._choices.choice(self._parts())()
        return burst

    def _parts(self) -> list[Any]:
        logins = [self._plain_login, self._plain_login, self._scram_login, self._scram_proof, self._scram_proof]
        orders = [self._any_mechanism, self._any_message, self._left_for_another]
        return [*logins, *orders, *[self._ask] * 5]

    def _ask(self) -> list[Sent]:
        return [self._choices.choice([self._metadata, self._fetch, self._fetch])()]

    def _any_mechanism(self) -> list[Sent]:
        return [self._mechanism_(self._choices.choice(_MECHANISMS))]

    def _any_message(self) -> list[Sent]:
        user = self._choices.choice(sorted(PASSWORDS))
        right = self._choices.random() < 0.5
        return [
            self._choices.choice([self._plain(user, right=right), self._scram_first(user), self._scram_first("alice")])
        ]

    def _plain_login(self) -> list[Sent]:
        return [self._mechanism_("PLAIN"), self._plain(self._choices.choice(sorted(PASSWORDS)), right=True)]

    def _scram_login(self) -> list[Sent]:
        return [self._mechanism_(SCRAM), self._scram_first(self._choices.choice(sorted(PASSWORDS)))]

    def _scram_proof(self) -> list[Sent]:
        """The second half of an exchange whose first half is answered."""
        if self._challenged is None:
            return self._scram_login()
        (exchange, user, challenge), self._challenged = self._challenged, None
        message = exchange.step(challenge)
        return [Sent(SaslAuthenticateRequest(auth_bytes=message), 2, 0, user, is_right=user in self._knows)]

    def _left_for_another(self) -> list[Sent]:
        """An exchange that is not ended before another begins, and a request in either name."""
        return [*self._scram_login(), *self._any_mechanism(), *self._ask()]

    def _versions_(self) -> Sent:
        return Sent(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 3, 0)

    def _mechanism_(self, name: str) -> Sent:
        return Sent(SaslHandshakeRequest(mechanism=name), 1, 0)

    def _plain(self, user: str, *, right: bool) -> Sent:
        right = right and user in self._knows
        message = f"\0{user}\0{PASSWORDS[user] if right else 'a wrong one'}".encode()
        return Sent(SaslAuthenticateRequest(auth_bytes=message), self._choices.choice([1, 2]), 0, user, is_right=right)

    def _scram_first(self, user: str) -> Sent:
        exchange = sasl.begin(SCRAM, user, PASSWORDS[user] if user in self._knows else "a wrong one")
        return Sent(SaslAuthenticateRequest(auth_bytes=exchange.step(b"")), 2, 0, user, exchange=exchange)

    def _metadata(self) -> Sent:
        return Sent(MetadataRequest(topics=None, allow_auto_topic_creation=False), 12, 0)

    def _fetch(self) -> Sent:
        name = self._choice_of_topic()
        partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        topic = FetchTopic(topic_id=self._door.topic_ids[name], partitions=[partition])
        return Sent(FetchRequest(max_wait_ms=0, min_bytes=0, topics=[topic]), 16, 0, name)

    def _choice_of_topic(self) -> str:
        return self._choices.choice(["secret", "secret", "public"])

    # What is heard

    def _judge(self, frame: bytes) -> None:
        """The next answer. Raises ViolationError if it was not allowed to whom the answers before it have let in."""
        one = self._waiting.popleft()
        key = one.request.API_KEY
        answer: Any
        correlation_id, answer = parse_response_frame(key, one.version, frame)
        if correlation_id != one.correlation_id:
            raise ViolationError(f"an answer to {correlation_id} where {one} was next")
        if key is ApiKey.SASL_HANDSHAKE:
            if not answer.error_code:
                self._mechanism = one.request.mechanism  # type: ignore[attr-defined]
        elif key is ApiKey.SASL_AUTHENTICATE:
            self._judge_message(one, answer)
        elif key is ApiKey.METADATA:
            self._judge_metadata(answer)
        elif key is ApiKey.FETCH:
            self._judge_fetch(one.user, answer)

    def _judge_message(self, one: Sent, answer: Any) -> None:
        token = bytes(answer.auth_bytes)
        if answer.error_code:
            self._has_failed = self._has_failed or bool(self._mechanism)
            self._counted["refused"] += 1
        elif self._mechanism == SCRAM and token.startswith(b"r="):
            if one.exchange is not None:
                self._challenged = one.exchange, one.user, token
        elif not one.is_right or self._has_failed:
            raise ViolationError(f"let in without a good password: {one}")
        elif self._identity not in ("", one.user):
            raise ViolationError(f"{self._identity} has become {one.user}")
        else:
            self._counted["let in again" if self._identity else "let in"] += 1
            self._identity, self._mechanism = one.user, ""

    def _judge_metadata(self, answer: Any) -> None:
        names = {it.name for it in answer.topics}
        if not (names or answer.brokers):
            return
        self._counted["metadata"] += 1
        if self._has_failed or not self._identity:
            raise ViolationError(f"nobody was told of {names}")
        if self._door.has_rights and names != {TOPICS[self._identity]}:
            raise ViolationError(f"{self._identity} was told of {names}")
        if self._door.is_stamped:
            expected = stamp(f"User:{self._identity}")
            if answer.cluster_id != expected:
                raise ViolationError(f"{self._identity} was filtered as {answer.cluster_id!r}, not {expected!r}")

    def _judge_fetch(self, name: str, answer: Any) -> None:
        records = [it.records for topic in answer.responses for it in topic.partitions if it.records]
        if not records:
            return
        self._counted[f"records of {name}"] += 1
        if self._has_failed or not self._identity:
            raise ViolationError(f"nobody got the records of {name}")
        if self._door.has_rights and TOPICS[self._identity] != name:
            raise ViolationError(f"{self._identity} got the records of {name}")


def stamp(principal: str) -> str:
    """What the filters of a proxy write into the answers for a principal."""
    return f"{principal}, filtered" if principal == "User:bob" else principal
