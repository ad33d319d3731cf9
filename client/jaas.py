"""One entry of Java's login configuration, as `sasl.jaas.config` holds it: `Class flag name="value" … ;`.

Kafka's counterpart is org.apache.kafka.common.security.JaasConfig.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

_TOKEN: Final = re.compile(r"""\s*(?:"((?:[^"\\]|\\.)*)"|([^\s"=;]+)|([=;]))""", re.DOTALL)
_FLAGS: Final = frozenset({"required", "requisite", "sufficient", "optional"})
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)


class JaasError(ValueError):
    """The text is not one login module with its options. It never holds a value."""


class LoginModule(NamedTuple):
    """A login module: the last part of its Java class's name, and its options."""

    name: str
    options: Mapping[str, str]


def parse_jaas(text: str) -> LoginModule:
    """The one login module that a text configures; raises JaasError."""
    tokens = _tokens(text)
    if len(tokens) < 3 or tokens[-1] != ";":
        raise JaasError('write: org.apache.kafka.….SomeLoginModule required name="value";')
    module, flag, *rest = tokens[:-1]
    if flag.lower() not in _FLAGS:
        raise JaasError("the word after the login module must be required, requisite, sufficient or optional")
    if ";" in rest:
        raise JaasError("there must be one login module, and nothing after its semicolon")
    if len(rest) % 3 or any(equals != "=" for equals in rest[1::3]):
        raise JaasError('options must be written as name="value"')
    return LoginModule(module.rpartition(".")[2], dict(zip(rest[::3], rest[2::3], strict=True)))


def _tokens(text: str) -> list[str]:
    found: list[str] = []
    position = 0
    text = text.rstrip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise JaasError("a quotation mark is missing")
        quoted, word, sign = match.groups()
        found.append(_ESCAPE.sub(r"\1", quoted) if quoted is not None else word or sign)
        position = match.end()
    return found
