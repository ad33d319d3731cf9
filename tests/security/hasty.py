"""Proxies that do not wait to learn who a client is: faults planted to see that the judge finds them."""

from __future__ import annotations

from collections import deque
from typing import Any, Final

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.access.sasl_handshake import SaslHandshakeRequest
from ottla.kproto.schema import Request
from ottla.proxy.admission import Admission
from ottla.proxy.claims import Claim
from ottla.proxy.login import ClientLogin


class Hasty(Admission):
    """Forwards and serves while SASL requests are unanswered: filters are made for the principal of that moment."""

    def __init__(self, login: ClientLogin | None, principal: str) -> None:
        super().__init__(login, principal)
        self._newest = Claim("")
        self._unanswered: deque[tuple[bool, Claim]] = deque()

    @property
    def is_asked(self) -> bool:
        return False

    def comes_alone(self, key: ApiKey) -> bool:
        return False

    def _admit(self, key: ApiKey) -> ErrorCode:
        return ErrorCode.NONE

    def _ask(self, request: Request) -> None:
        is_handshake = isinstance(request, SaslHandshakeRequest)
        if isinstance(request, SaslHandshakeRequest):
            self._newest = Claim(request.mechanism)
        else:
            self._newest.take(bytes(request.auth_bytes))  # type: ignore[attr-defined]
        self._unanswered.append((is_handshake, self._newest))

    def answered(self, answer: Any) -> None:
        is_handshake, claim = self._unanswered.popleft()
        if not is_handshake and not answer.error_code and self._proving(claim).is_proved(bytes(answer.auth_bytes)):
            self._principal = claim.principal or ""

    def _proving(self, claim: Claim) -> Claim:
        return claim


class HastyAndForgetful(Hasty):
    """Besides, it takes an answer for that of the newest mechanism: SCRAM's challenge, for PLAIN's consent."""

    def _proving(self, claim: Claim) -> Claim:
        return self._newest


SYMPTOM_OF_FILTERS: Final = "was filtered as"
FAULTS: Final[dict[str, tuple[type[Admission], str]]] = {
    "the filters are made before the login is answered": (Hasty, SYMPTOM_OF_FILTERS),
    "the mechanism is read when the answer comes": (HastyAndForgetful, "got the records of"),
}
