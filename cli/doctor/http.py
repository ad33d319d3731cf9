"""What `ottla doctor` learns from a running broker's own port for monitoring: is it ready, and what fails in it?"""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any, Final

from ottla.cli.doctor.finding import Finding, fail, ok, warn
from ottla.server.network.endpoints import parse_http_address
from ottla.server.settings.config import BrokerConfig, ConfigError

_TIMEOUT_SECONDS: Final = 3.0
_EVERY_ADDRESS: Final = ("", "0.0.0.0", "::")


def examine(config: BrokerConfig) -> Iterator[Finding]:
    """Ask `/readyz`, where there is an HTTP port at a fixed address that answers."""
    if not config.ottla_http_listen:
        return
    try:
        address = parse_http_address(config.ottla_http_listen)
    except ConfigError as error:
        yield fail("readiness", str(error), "correct ottla.http.listen")
        return
    answer = _ask(address.host, address.port, encrypted=config.ottla_http_security_protocol.endswith("SSL"))
    if answer is None:
        return  # No broker runs: the ports have been looked at.
    if answer.get("ready"):
        yield ok("readiness", "the broker serves everything that it should")
    else:
        reasons = "; ".join(answer.get("reasons", ())) or "it does not say why to everybody"
        yield warn("readiness", f"the broker is not ready: {reasons}", "see its log")
    for degraded in answer.get("degraded", ()):
        yield warn("health", str(degraded), "see its log, and `ottla fsck`")


def _ask(host: str, port: int, *, encrypted: bool) -> dict[str, Any] | None:
    """What it answers, ready or not; None if nobody does who is a broker. Certificates are not checked."""
    host = "127.0.0.1" if host in _EVERY_ADDRESS else host
    context = None
    if encrypted:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    url = f"{'https' if encrypted else 'http'}://{f'[{host}]' if ':' in host else host}:{port}/readyz"
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT_SECONDS, context=context) as response:
            told = response.read()
    except urllib.error.HTTPError as error:
        with error:
            told = error.read()
    except OSError:
        return None
    try:
        answer = json.loads(told)
    except ValueError:
        return None
    return answer if isinstance(answer, dict) else None
