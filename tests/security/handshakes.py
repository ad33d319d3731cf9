"""Conversations before and while somebody authenticates, as no client would have them, drawn at random by a seed.

None of them knows a password. So whatever is sent, in whatever order, cut wherever: nothing but what is meant for
strangers is answered, the broker ends no connection by a fault of its own, and an honest client is served afterwards.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Awaitable, Callable
from typing import Any, Final

import trio

from ottla.client import sasl
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import DecodeError, ErrorCode
from ottla.kproto.frames import build_request_frame, parse_response_frame
from ottla.kproto.messages.access.sasl_authenticate import SaslAuthenticateRequest
from ottla.kproto.messages.access.sasl_handshake import SaslHandshakeRequest
from ottla.kproto.messages.cluster.api_versions import ApiVersionsRequest
from ottla.kproto.messages.groups.list_groups import ListGroupsRequest
from ottla.kproto.messages.topics.metadata import MetadataRequest
from ottla.kproto.schema import Request

MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI", "", "plain", "\x00", "X" * 300)
_STEPS: Final = 12
_ANSWER_SECONDS: Final = 0.02
_MAX_ANSWER: Final = 1 << 20
#: The beginning of a TLS 1.3 ClientHello, whose rest is missing.
_HELLO: Final = bytes.fromhex("16030100f8010000f40303") + bytes(32)
_OTHERS: Final = (_HELLO, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x15\x03\x03\x00\x02\x02\x28")
_STRANGERS: Final = (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)


class ViolationError(AssertionError):
    """A stranger got what strangers must not get."""


class Conversation:
    """One connection's, from the first byte to its end."""

    def __init__(
        self,
        stream: trio.abc.Stream,
        choices: random.Random,
        heard: list[bytes],
        asked: dict[int, tuple[ApiKey, int]] | None = None,
    ) -> None:
        """`heard` are messages of an exchange that succeeded, to be sent once more; `asked` is what is unanswered."""
        self._stream = stream
        self._choices = choices
        self._heard = heard
        self._received = bytearray()
        self._exchange: sasl.Exchange | None = None
        #: What was asked and is not answered: by correlation id, the API and its version.
        self._asked = {} if asked is None else asked
        self._correlation_id = 0
        #: Whether something was sent that is no request, of which nobody knows what the broker reads in it.
        self._is_garbled = False
        #: Whether messages of the mechanism go without a request around them, as after SaslHandshake v0.
        self._is_raw = False

    async def run(self) -> None:
        """Until somebody has had enough."""
        try:
            for _ in range(self._choices.randrange(1, _STEPS)):
                await self._choices.choice(self._steps())()
        except (trio.BrokenResourceError, trio.ClosedResourceError, EOFError):
            return
        finally:
            await trio.aclose_forcefully(self._stream)

    def _steps(self) -> list[Callable[[], Awaitable[None]]]:
        usual: list[Callable[[], Awaitable[None]]] = [self._versions, self._handshake, self._authenticate, self._scram]
        odd = [self._replay, self._forbidden, self._garbage, self._frame, self._cut, self._drip, self._other_protocol]
        return [*usual, *usual, *odd]

    async def _versions(self) -> None:
        request = ApiVersionsRequest(client_software_name="x", client_software_version="1")
        await self._call(request, self._choices.choice([0, 1, 2, 3, 4]))

    async def _handshake(self) -> None:
        name, version = self._choices.choice(MECHANISMS), self._choices.choice([0, 1])
        answer = await self._call(SaslHandshakeRequest(mechanism=name), version)
        if answer is not None:
            self._exchange = sasl.begin(name, "alice", "a wrong one") if name in sasl.DIGESTS else None
            self._is_raw = version == 0 and not answer.error_code

    async def _authenticate(self) -> None:
        message = self._choices.choice(
            [
                b"",
                b"\0",
                b"\0alice\0wrong",
                b"alice\0alice\0wrong",
                b"\0\0\0\0",
                b"\0admin\0" + b"x" * 300,
                b"n,,n=alice,r=" + b"r" * self._choices.choice([0, 1, 24, 5000]),
                b"n,,n=alice,r=x,tokenauth=true",
                b"p=tls-unique,,n=alice,r=x",
                b"c=biws,r=x,p=AAAA",
                b"n,,\x01auth=Bearer a.b.c\x01\x01",
                b"\x01",
                self._choices.randbytes(self._choices.choice([1, 50, 4096, 4097])),
            ]
        )
        await self._send_message(message)

    async def _scram(self) -> None:
        """A step of an exchange in good order, by who does not know the password."""
        if self._exchange is None:
            await self._authenticate()
            return
        exchange, self._exchange = self._exchange, None
        answer = await self._send_message(exchange.step(b""))
        if answer is not None and not answer.error_code:
            answer = await self._send_message(exchange.step(bytes(answer.auth_bytes)))
            if answer is not None and not answer.error_code:
                raise ViolationError("a proof of a wrong password was good")

    async def _replay(self) -> None:
        """What somebody else has said who was let in."""
        await self._call(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1)
        for number, message in enumerate(self._heard):
            answer = await self._send_message(message)
            if number and answer is not None and not answer.error_code:
                raise ViolationError("a replayed exchange was good")

    async def _forbidden(self) -> None:
        request, version = self._choices.choice([(MetadataRequest(topics=None), 12), (ListGroupsRequest(), 4)])
        await self._call(request, version)

    async def _garbage(self) -> None:
        self._is_garbled = True
        await self._stream.send_all(self._choices.randbytes(self._choices.choice([1, 3, 4, 100, 5000])))
        await self._hear()

    async def _frame(self) -> None:
        """One whose length is a lie, or that is too long."""
        self._is_garbled = True
        size = self._choices.choice([0, -1, 1, 7, 524_289, 1 << 30, 0x7FFFFFFF])
        await self._stream.send_all(struct.pack(">i", size) + self._choices.randbytes(20))
        await self._hear()

    async def _cut(self) -> None:
        """A good request, in pieces; not all of them may come."""
        frame = self._request(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        at = self._choices.randrange(1, len(frame))
        await self._stream.send_all(frame[:at])
        await trio.lowlevel.checkpoint()
        if self._choices.random() < 0.5:
            raise EOFError
        await self._stream.send_all(frame[at:])
        await self._hear()

    async def _drip(self) -> None:
        """A good request, byte by byte."""
        for byte in self._request(SaslHandshakeRequest(mechanism="PLAIN"), 1):
            await self._stream.send_all(bytes([byte]))
            await trio.lowlevel.checkpoint()
        await self._hear()

    async def _other_protocol(self) -> None:
        self._is_garbled = True
        await self._stream.send_all(self._choices.choice(_OTHERS))
        await self._hear()

    async def _send_message(self, message: bytes) -> Any:
        if self._is_raw and self._choices.random() < 0.8:
            await self._stream.send_all(struct.pack(">i", len(message)) + message)
            await self._hear()
            return None
        return await self._call(SaslAuthenticateRequest(auth_bytes=message), self._choices.choice([0, 1, 2]))

    def _request(self, request: Request, version: int) -> bytes:
        self._correlation_id += 1
        self._asked[self._correlation_id] = request.API_KEY, version
        return build_request_frame(request, version, self._correlation_id, "x")

    async def _call(self, request: Request, version: int) -> Any:
        """The answer if it comes soon."""
        frame = self._request(request, version)
        await self._stream.send_all(frame)
        return await self._hear(self._correlation_id)

    async def _hear(self, awaited: int = 0) -> Any:
        """Judge what comes soon, until it is the answer that is awaited, which is returned."""
        with trio.move_on_after(_ANSWER_SECONDS):
            while True:
                correlation_id, answer = self.judged(await self._frame_in())
                if awaited and correlation_id == awaited:
                    return answer
        return None

    def judged(self, frame: bytes) -> tuple[int, Any]:
        """What a frame is an answer to. Raises ViolationError if that must not be answered, or not so."""
        asked = self._asked.pop(int.from_bytes(frame[:4], "big", signed=True), None) if len(frame) >= 4 else None
        if asked is None:
            # SCRAM's first message without a request around it, which is for everybody.
            if self._is_garbled or (self._is_raw and frame.startswith(b"r=")):
                return 0, None
            raise ViolationError(f"nobody asked for {frame!r}")
        key, version = asked
        try:
            correlation_id, answer = parse_response_frame(key, version, frame)
        except DecodeError as error:
            raise ViolationError(f"{key.name} v{version} is answered {frame!r}: {error}") from error
        self._check(key, answer)
        return correlation_id, answer

    def _check_step(self, answer: Any) -> None:
        """SCRAM's first answer is for everybody. A client that is let in gets a proof, or by PLAIN an empty answer."""
        if not bytes(answer.auth_bytes).startswith(b"r=") or answer.session_lifetime_ms:
            raise ViolationError(f"a stranger is let in: {answer}")

    def _check(self, key: ApiKey, answer: Any) -> None:
        if key is ApiKey.SASL_AUTHENTICATE and not answer.error_code:
            self._check_step(answer)
        if key in _STRANGERS:
            return
        told = [name for name in ("brokers", "topics", "cluster_id", "groups") if getattr(answer, name, None)]
        # A refusal of Metadata says so by topic, and here none is named; there is no code for the whole before v13.
        is_refused = key is ApiKey.METADATA or answer.error_code != ErrorCode.NONE
        if told or not is_refused:
            raise ViolationError(f"a stranger was answered {key.name}: {answer}")

    async def _frame_in(self) -> bytes:
        while len(self._received) < 4:
            await self._more()
        (size,) = struct.unpack(">i", self._received[:4])
        if not 0 <= size <= _MAX_ANSWER:
            raise EOFError
        while len(self._received) < 4 + size:
            await self._more()
        frame = bytes(self._received[4 : 4 + size])
        del self._received[: 4 + size]
        return frame

    async def _more(self) -> None:
        data = await self._stream.receive_some(65536)
        if not data:
            raise EOFError
        self._received += data
