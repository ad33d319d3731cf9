"""A client's side of one connection, without the connection itself: requests and received bytes go in, bytes to send
and answers come out. There is no socket here and no clock; `connection.py` and `trio_connection.py` add those.

The rules:

1. ApiVersions comes first (KIP-511), in the highest version known here. A broker that does not know that version
   answers in version 0 with UNSUPPORTED_VERSION and, if it is not too old, with the versions of ApiVersions that it
   has; then it is asked once more.
2. Each other request goes out in the highest version that both sides know; the caller may limit it further. The version
   must be able to carry all that the request says: nothing is left out in silence.
3. Answers come in the order of the requests, and each has its request's correlation id. An answer with another id, one
   that no request waits for, or one that cannot be parsed ends the connection: its sender cannot be trusted.
4. A Produce request with acks=0 has no answer.
5. A request cannot be withdrawn once it has a correlation id. Its answer is received even if the caller has given up.
6. With a `login` the client authenticates as soon as the versions are known, by SaslHandshake v1 and as many
   SaslAuthenticate as the mechanism takes; a refusal is an AuthenticationError.
7. Everything is bounded: how many requests wait for answers, and how large an answer may be. The first one must be
   small, since nothing has shown yet that a broker is there.

| state | `start` | `send` | bytes received | what ends the state |
|---|---|---|---|---|
| new | asks for the versions | not yet | not yet | `start` |
| negotiating | never again | not yet | versions, or a reason to ask once more | the versions are known, or an error |
| authenticating | never again | not yet | messages of the SASL exchange, if there is one | it is over, or an error |
| open | never again | yes | answers | an error, or the end of the stream |
| lost | never again | raises | raises | nothing |
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.client.errors import (
    AuthenticationError,
    ClientError,
    ConnectionLostError,
    UnexpectedAnswerError,
    UnsupportedVersionError,
)
from ottla.kproto import codec, framing, headers
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import DecodeError, EncodeError, ErrorCode, ProtocolError
from ottla.kproto.messages import response_class
from ottla.kproto.messages.access.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.kproto.messages.access.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.kproto.messages.cluster.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.kproto.versions import NO_VERSIONS, OPEN_END, VersionRange

if TYPE_CHECKING:
    from ottla.client.sasl import Exchange
    from ottla.client.security import Login
    from ottla.kproto.schema import Request
    from ottla.kproto.types import Buffer

MAX_ANSWER_BYTES: Final = 256 * 1024 * 1024
MAX_IN_FLIGHT: Final = 1000

_MAX_FIRST_ANSWER_BYTES: Final = 1024 * 1024
_MAX_CORRELATION_ID: Final = (1 << 31) - 1
_SOFTWARE_NAME: Final = "ottla"
_SOFTWARE_VERSION: Final = "1"


class State(Enum):
    """The state of a connection: see the table above."""

    NEW = auto()
    NEGOTIATING = auto()
    AUTHENTICATING = auto()
    OPEN = auto()
    LOST = auto()


class Sent(NamedTuple):
    """A request that is on its way."""

    correlation_id: int
    key: ApiKey
    version: int


class Answer(NamedTuple):
    """An answer as it came: `frame` has header and body, and the body begins at `body_start`."""

    request: Sent
    frame: Buffer
    body_start: int


class ClientProtocol:
    """One connection. `peer` names the other side in messages.

    Every verb raises ConnectionLostError once the connection is lost, and a ClientError of another kind where only what
    was asked for is wrong.
    """

    def __init__(
        self,
        peer: str,
        client_id: str,
        *,
        max_answer_bytes: int = MAX_ANSWER_BYTES,
        max_in_flight: int = MAX_IN_FLIGHT,
        login: Login | None = None,
    ) -> None:
        self.peer = peer
        self.state = State.NEW
        self._client_id = client_id
        self._max_answer_bytes = max_answer_bytes
        self._max_in_flight = max_in_flight
        self._login = login
        self._exchange: Exchange | None = None
        #: How long the session lives, 0 forever: by then the client has to authenticate again.
        self.session_lifetime_ms = 0
        self._correlation_id = 0
        self._in_flight: deque[Sent] = deque()
        self._versions: Mapping[int, VersionRange] = {}
        self._outgoing: list[Buffer] = []
        self._frames = framing.FrameParser(_MAX_FIRST_ANSWER_BYTES)
        self._failure: ClientError | None = None
        self._was_open = False

    @property
    def in_flight(self) -> Sequence[Sent]:
        """The requests that wait for their answers, the oldest first."""
        return self._in_flight

    def start(self) -> None:
        """Ask what the broker serves: the first thing on each connection."""
        assert self.state is State.NEW
        self.state = State.NEGOTIATING
        self._ask_versions(ApiKey.API_VERSIONS.valid_versions.highest)

    def authenticate_again(self) -> None:
        """Begin a new session before the present one ends (KIP-368); no answer may be waited for."""
        self.check_open()
        assert self._login is not None
        assert not self._in_flight
        self._authenticate(self._login)

    def check_open(self) -> None:
        """Raises ConnectionLostError once the connection is lost; before it is open nothing may be asked for.

        It stays open while a new session begins, but nothing may be sent before that has begun.
        """
        self._check_not_lost()
        assert self._was_open, self.state

    def version(self, key: ApiKey, at_most: int = OPEN_END) -> int:
        """The highest version of an API that both sides know and the caller allows; UnsupportedVersionError without."""
        self.check_open()
        return self._common_version(key, at_most)

    def _common_version(self, key: ApiKey, at_most: int = OPEN_END) -> int:
        wanted = key.valid_versions.intersection(VersionRange(0, at_most))
        common = wanted.intersection(self._versions.get(key, NO_VERSIONS))
        if common == NO_VERSIONS:
            raise UnsupportedVersionError(
                f"the broker at {self.peer} does not serve {key.kafka_name} in a version that this client knows"
            )
        return common.highest

    def send(self, request: Request, *, at_most: int = OPEN_END) -> Sent:
        """Put a request among the bytes to send. Asking for too much at once is a ClientError."""
        version = self.version(request.API_KEY, at_most)
        return self.send_body(request.API_KEY, version, self.build(request, version), has_answer=has_answer(request))

    def build(self, request: Request, version: int) -> list[Buffer]:
        """The body of a request; UnsupportedVersionError if that version cannot carry what it says."""
        try:
            return codec.build_parts(request, version)
        except EncodeError as error:
            raise UnsupportedVersionError(
                f"the broker at {self.peer} serves {request.API_KEY.kafka_name} only up to version {version}: {error}"
            ) from error

    def send_body(self, key: ApiKey, version: int, body: Sequence[Buffer], *, has_answer: bool = True) -> Sent:
        """Put a request whose body is built among the bytes to send."""
        self.check_open()
        assert self.state is State.OPEN, "a new session is beginning"
        if len(self._in_flight) >= self._max_in_flight:
            raise ClientError(f"{len(self._in_flight)} requests to {self.peer} wait for their answers already")
        return self._put(key, version, body, has_answer=has_answer)

    def data_to_send(self) -> list[Buffer]:
        """The bytes to send next, in pieces; each is handed out once. Call it after every other verb."""
        outgoing, self._outgoing = self._outgoing, []
        return outgoing

    def buffer(self) -> memoryview:
        """The memory for the next bytes that are received. Release it before `received` is called."""
        return self._frames.buffer()

    def received(self, count: int) -> list[Answer]:
        """Take the first `count` bytes of `buffer()`, 0 if the peer has closed; returns the answers that are whole."""
        return self._take(self._frames.received, count)

    def feed(self, data: Buffer) -> list[Answer]:
        """Take bytes that were received elsewhere, none if the peer has closed; returns the answers that are whole."""
        return self._take(self._frames.feed, data)

    def parse(self, answer: Answer) -> Any:
        """The message of an answer, in which record batches are views of the frame."""
        key, version = answer.request.key, answer.request.version
        try:
            return codec.parse_response(key, version, answer.frame, answer.body_start)
        except ProtocolError as error:
            raise self._lose_by(answer, error) from error

    def parse_in_steps(self, answer: Answer) -> codec.Steps[Any]:
        """`parse` with stops, for an answer that is large, and carries no records."""
        try:
            key, version = answer.request.key, answer.request.version
            steps = codec.parse_prefix_in_steps(response_class(key), version, answer.frame, answer.body_start)
            message, end = yield from steps
            if end != len(answer.frame):
                raise DecodeError(f"it ends {len(answer.frame) - end} bytes before its frame does")
        except ProtocolError as error:
            raise self._lose_by(answer, error) from error
        return message

    def _lose_by(self, answer: Answer, error: ProtocolError) -> ClientError:
        what = f"{self.peer} answered {answer.request.key.kafka_name} with something that is not an answer: {error}"
        return self.lose(UnexpectedAnswerError(what))

    def lose(self, error: ClientError) -> ClientError:
        """The connection is of no more use, and every verb says so from now on. Returns the error that came first."""
        if self._failure is None:
            self.state = State.LOST
            self._failure = error
            self._outgoing.clear()
        return self._failure

    def _check_not_lost(self) -> None:
        if self._failure is not None:
            raise ConnectionLostError(str(self._failure)) from self._failure

    def _put(self, key: ApiKey, version: int, body: Sequence[Buffer], *, has_answer: bool = True) -> Sent:
        self._correlation_id = (self._correlation_id + 1) & _MAX_CORRELATION_ID
        header = headers.build_request_header(key, version, self._correlation_id, self._client_id)
        size_bytes = len(header) + sum(len(part) for part in body)
        self._outgoing.append(framing.frame_prefix(size_bytes) + header)
        self._outgoing += body
        sent = Sent(self._correlation_id, key, version)
        if has_answer:
            self._in_flight.append(sent)
        return sent

    def _take(self, cut: Callable[[Any], list[Buffer]], received: Any) -> list[Answer]:
        self._check_not_lost()
        if not received:
            raise self.lose(ConnectionLostError(f"the broker at {self.peer} closed the connection"))
        try:
            return [answer for frame in cut(received) if (answer := self._answer(frame)) is not None]
        except ProtocolError as error:
            what = f"{self.peer} does not speak Kafka's protocol: {error}"
            raise self.lose(UnexpectedAnswerError(what)) from error

    def _answer(self, frame: Buffer) -> Answer | None:
        """The answer that a frame holds; None if it was for the negotiation."""
        if not self._in_flight:
            raise DecodeError("an answer that nobody asked for")
        request = self._in_flight.popleft()
        header, body_start = headers.parse_response_header(request.key, request.version, frame)
        if header.correlation_id != request.correlation_id:
            raise DecodeError(f"an answer to request {header.correlation_id}, not {request.correlation_id}")
        if self.state is State.NEGOTIATING:
            self._negotiate(request.version, frame, body_start)
            return None
        if self.state is State.AUTHENTICATING:
            self._go_on(Answer(request, frame, body_start))
            return None
        return Answer(request, frame, body_start)

    def _ask_versions(self, version: int) -> None:
        request = ApiVersionsRequest(client_software_name=_SOFTWARE_NAME, client_software_version=_SOFTWARE_VERSION)
        self._put(ApiKey.API_VERSIONS, version, codec.build_parts(request, version))

    def _negotiate(self, version: int, frame: Buffer, pos: int) -> None:
        refused = int.from_bytes(memoryview(frame)[pos : pos + 2], "big") == ErrorCode.UNSUPPORTED_VERSION
        answer, _ = codec.parse_prefix(ApiVersionsResponse, 0 if refused else version, frame, pos)
        served = {api.api_key: VersionRange(api.min_version, api.max_version) for api in answer.api_keys}
        if refused and version > 0:
            known = ApiKey.API_VERSIONS.valid_versions.intersection(served.get(ApiKey.API_VERSIONS, NO_VERSIONS))
            self._ask_versions(min(max(0, known.highest), version - 1))
        elif answer.error_code:
            what = f"the broker at {self.peer} answers ApiVersions with error {answer.error_code}"
            raise self.lose(UnsupportedVersionError(what))
        else:
            self._versions = served
            if self._login is None:
                self._open()
            else:
                self._authenticate(self._login)

    def _open(self) -> None:
        self._frames.limit(self._max_answer_bytes)
        self.state = State.OPEN
        self._was_open = True

    def _authenticate(self, login: Login) -> None:
        self.state = State.AUTHENTICATING
        self._exchange = login.begin()
        self._ask(SaslHandshakeRequest(mechanism=login.mechanism))

    def _go_on(self, answer: Answer) -> None:
        """The next step of the SASL exchange."""
        assert self._exchange is not None
        try:
            self._check_login(response := self.parse(answer), self._exchange.mechanism)
            is_handshake = isinstance(response, SaslHandshakeResponse)
            token = self._exchange.step(b"" if is_handshake else bytes(response.auth_bytes))
        except AuthenticationError as error:
            raise self.lose(error) from None
        if self._exchange.is_complete:
            self._exchange = None
            self.session_lifetime_ms = response.session_lifetime_ms
            self._open()
        else:
            self._ask(SaslAuthenticateRequest(auth_bytes=token))

    def _check_login(self, response: SaslHandshakeResponse | SaslAuthenticateResponse, mechanism: str) -> None:
        if not response.error_code:
            return
        if isinstance(response, SaslAuthenticateResponse):
            why = response.error_message or "the credentials were refused"
        elif response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            why = f"it does not accept {mechanism}, only {', '.join(response.mechanisms)}"
        else:
            why = "it requires no authentication here: use security.protocol=PLAINTEXT or SSL"
        raise AuthenticationError(f"the broker at {self.peer} refuses to let us in: {why}")

    def _ask(self, request: Request) -> None:
        version = self._common_version(request.API_KEY)
        self._put(request.API_KEY, version, codec.build_parts(request, version))


def has_answer(request: Request) -> bool:
    """Whether a broker answers this request: all but a Produce request with acks=0."""
    return not (request.API_KEY is ApiKey.PRODUCE and getattr(request, "acks", None) == 0)
