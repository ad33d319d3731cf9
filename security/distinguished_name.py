"""From a client's certificate to a principal: its distinguished name, and the rules that shorten it.

Kafka's counterparts are X500Principal.getName, whose form is that of RFC 2253, and
org.apache.kafka.common.security.ssl.SslPrincipalMapper.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from ottla.security.errors import NoRuleError

_SHORT: Final = {
    "commonName": "CN",
    "countryName": "C",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}
_EMAIL: Final = "emailAddress"
_EMAIL_OID: Final = "1.2.840.113549.1.9.1"
_SPECIAL: Final = re.compile(r'([,+"\\<>;])')
_RULE: Final = re.compile(
    r"\s*(?:(?P<default>DEFAULT)|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<to>(?:\\.|[^\\/])*)/(?P<case>[LU]?))\s*(?:,|$)"
)
_GROUP: Final = re.compile(r"\\(.)|\$(\d)")


class RuleError(ValueError):
    """The rules cannot be read."""


class _Rule(NamedTuple):
    pattern: re.Pattern[str] | None
    replacement: str = ""
    case: str = ""


def distinguished_name(subject: Iterable[Sequence[tuple[str, str]]]) -> str:
    """The name as RFC 2253 writes it, the most specific part first; `subject` is as ssl.getpeercert gives it."""
    return ",".join("+".join(_part(name, value) for name, value in parts) for parts in reversed(list(subject)))


def _part(name: str, value: str) -> str:
    if name == _EMAIL:
        # An attribute for which RFC 2253 has no name is written as it is encoded: an IA5String.
        encoded = value.encode("ascii", "replace")
        return f"{_EMAIL_OID}=#16{_der_length(len(encoded)).hex()}{encoded.hex()}"
    escaped = _SPECIAL.sub(r"\\\1", value)
    if escaped.startswith(("#", " ")):
        escaped = "\\" + escaped
    if escaped.endswith(" ") and len(value) > 1:
        escaped = escaped[:-1] + "\\ "
    return f"{_SHORT.get(name, name)}={escaped}"


def _der_length(count: int) -> bytes:
    if count < 0x80:
        return bytes([count])
    encoded = count.to_bytes((count.bit_length() + 7) // 8, "big")
    return bytes([0x80 | len(encoded)]) + encoded


class PrincipalRules:
    """`ssl.principal.mapping.rules`: the first rule that fits the whole name says who it is."""

    def __init__(self, text: str) -> None:
        """Raises RuleError."""
        self._rules: list[_Rule] = []
        position = 0
        text = text.strip() or "DEFAULT"
        while position < len(text):
            match = _RULE.match(text, position)
            if match is None:
                raise RuleError(f"{text[position:]!r} is not a rule: write DEFAULT or RULE:pattern/replacement/[LU]")
            position = match.end()
            self._rules.append(_read(match))

    def user(self, name: str) -> str:
        """The user of a distinguished name; raises NoRuleError."""
        for rule in self._rules:
            if rule.pattern is None:
                return name
            match = rule.pattern.fullmatch(name)
            if match is not None:
                user = match.expand(rule.replacement)
                return user.lower() if rule.case == "L" else user.upper() if rule.case == "U" else user
        raise NoRuleError(f"no rule in ssl.principal.mapping.rules matches {name}")


def _read(match: re.Match[str]) -> _Rule:
    if match["default"]:
        return _Rule(None)
    try:
        pattern = re.compile(match["pattern"])
        replacement = as_python_replacement(match["to"])
        pattern.sub(replacement, "")
    except (re.error, IndexError) as error:
        raise RuleError(f"{match[0].strip()!r} is not a rule: {error}") from None
    return _Rule(pattern, replacement, match["case"])


def as_python_replacement(text: str) -> str:
    """A replacement with Java's `$1` and `\\x`, as Python writes it."""
    return _GROUP.sub(_as_python, text)


def _as_python(group: Any) -> str:
    escaped, number = group.groups()
    return f"\\g<{number}>" if number is not None else escaped.replace("\\", "\\\\")
