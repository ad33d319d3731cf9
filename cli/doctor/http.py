"""Checks of the HTTP ports by `ottla doctor`: are they free, or what does the broker that has them answer?"""

from __future__ import annotations

import http.client
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any, Final

from ottla.cli.doctor import network
from ottla.cli.doctor.finding import Finding, fail, ok, warn
from ottla.server.network.endpoints import parse_http_address
from ottla.server.network.http_ports import PORTS
from ottla.server.network.listener import ListenAddress
from ottla.settings.config import BrokerConfig

_TIMEOUT_SECONDS: Final = 3.0
_MOST_BYTES: Final = 1 << 20
_EVERY_ADDRESS: Final = ("", "0.0.0.0", "::")


def examine(config: BrokerConfig) -> Iterator[Finding]:
    """Whether the HTTP ports can be had; where a broker has them, `/readyz` is asked."""
    for port in PORTS:
        address = port.address(config)
        if address is None:
            continue
        finding = network.port(address, port.flag)
        if finding is None and not _answers(address, "/", config):
            finding = _taken(address, port.flag, port.what)
        if finding is not None:
            yield finding
    if not config.ottla_http_listen:
        return
    address = parse_http_address(config.ottla_http_listen)
    finding = network.port(address, "--http")
    answer = _ask(address, "/readyz", config) if finding is None else None
    if finding is None and answer is None:
        finding = _taken(address, "--http", "broker")
    if finding is not None:
        yield finding
    if answer is None:
        return
    if answer.get("ready"):
        yield ok("readiness", "the broker serves everything that it should")
    else:
        reasons = "; ".join(answer.get("reasons", ())) or "it does not say why to everybody"
        yield warn("readiness", f"the broker is not ready: {reasons}", "see its log")
    for degraded in answer.get("degraded", ()):
        yield warn("health", str(degraded), "see its log, and `ottla fsck`")


def _taken(address: ListenAddress, flag: str, who: str) -> Finding:
    subject = f"{flag} {address.host or '*'}:{address.port}"
    return fail(subject, f"it is taken, and no {who} answers there", f"choose another address with {flag}")


def _ask(address: ListenAddress, path: str, config: BrokerConfig) -> dict[str, Any] | None:
    """The object that it answers, ready or not; None if it answers nothing of the kind."""
    told = _read(address, path, config)
    try:
        answer = None if told is None else json.loads(told)
    except ValueError:
        return None
    return answer if isinstance(answer, dict) else None


def _answers(address: ListenAddress, path: str, config: BrokerConfig) -> bool:
    return _read(address, path, config) is not None


def _read(address: ListenAddress, path: str, config: BrokerConfig) -> bytes | None:
    """The body of the answer, an error or not; None without an answer by HTTP. Certificates are not checked."""
    is_encrypted = config.ottla_http_security_protocol.endswith("SSL")
    host = "127.0.0.1" if address.host in _EVERY_ADDRESS else address.host
    context = None
    if is_encrypted:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    place = f"{f'[{host}]' if ':' in host else host}:{address.port}"
    url = f"{'https' if is_encrypted else 'http'}://{place}{path}"
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT_SECONDS, context=context) as response:
            return bytes(response.read(_MOST_BYTES))
    except urllib.error.HTTPError as error:
        with error:
            return error.read(_MOST_BYTES)
    except (OSError, http.client.HTTPException):
        return None
