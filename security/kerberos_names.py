"""From a Kerberos principal to a user: `alice@EXAMPLE.ORG` and the rules that shorten it.

Kafka's counterparts are KerberosName, KerberosShortNamer and KerberosRule in
org.apache.kafka.common.security.kerberos.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from ottla.security.distinguished_name import RuleError, as_python_replacement
from ottla.security.errors import NoRuleError

_NAME: Final = re.compile(r"(?P<primary>[^/@]*)(?:/(?P<instance>[^/@]*))?@(?P<realm>[^/@]*)")
_RULE: Final = re.compile(
    r"(?P<default>DEFAULT)"
    r"|RULE:\[(?P<count>\d+):(?P<format>[^\]]*)\](?:\((?P<fits>[^)]*)\))?"
    r"(?:s/(?P<pattern>[^/]*)/(?P<to>[^/]*)/(?P<all>g)?)?/?(?P<case>[LU])?"
)
_PARAMETER: Final = re.compile(r"\$(\d*)")


class _Rule(NamedTuple):
    """Without a `part_count` it is the rule DEFAULT."""

    part_count: int | None
    format: str = ""
    fits: re.Pattern[str] | None = None
    pattern: re.Pattern[str] | None = None
    replacement: str = ""
    is_for_all: bool = False
    case: str = ""


class KerberosRules:
    """`sasl.kerberos.principal.to.local.rules`: the first rule that fits a principal says which user it is."""

    def __init__(self, rules: Sequence[str], default_realm: str) -> None:
        """Raises RuleError."""
        self._rules = [_read(rule) for rule in rules or ("DEFAULT",)]
        self._default_realm = default_realm

    def user(self, principal: str) -> str:
        """The user of a principal; raises NoRuleError."""
        match = _NAME.fullmatch(principal)
        if match is None:
            raise NoRuleError(f"{principal!r} is not a Kerberos principal")
        parts = [part for part in match.group("realm", "primary", "instance") if part is not None]
        for rule in self._rules:
            user = self._apply(rule, parts)
            if user is None:
                continue
            if not user or "/" in user or "@" in user:
                raise NoRuleError(f"a rule of sasl.kerberos.principal.to.local.rules makes {user!r} of {principal}")
            return user.lower() if rule.case == "L" else user.upper() if rule.case == "U" else user
        raise NoRuleError(f"no rule of sasl.kerberos.principal.to.local.rules fits {principal}")

    def _apply(self, rule: _Rule, parts: Sequence[str]) -> str | None:
        if rule.part_count is None:
            return parts[1] if parts[0] == self._default_realm else None
        if len(parts) - 1 != rule.part_count:
            return None
        name = _PARAMETER.sub(lambda match: parts[int(match[1])], rule.format)
        if rule.fits is not None and rule.fits.fullmatch(name) is None:
            return None
        if rule.pattern is None:
            return name
        return rule.pattern.sub(rule.replacement, name, count=0 if rule.is_for_all else 1)


def _read(text: str) -> _Rule:
    match = _RULE.fullmatch(text)
    if match is None:
        raise RuleError(f"{text!r} is not a rule: write DEFAULT or RULE:[n:$1@$0](pattern)s/pattern/replacement/g/L")
    if match["default"]:
        return _Rule(None)
    count = int(match["count"])
    for number in _PARAMETER.findall(match["format"]):
        if not number or int(number) > count:
            raise RuleError(f"{text!r} is not a rule: ${number} is beyond the {count} parts of the name")
    try:
        fits = None if match["fits"] is None else re.compile(match["fits"])
        pattern = None if match["pattern"] is None else re.compile(match["pattern"])
        replacement = as_python_replacement(match["to"] or "")
        if pattern is not None:
            pattern.sub(replacement, "")
    except (re.error, IndexError) as error:
        raise RuleError(f"{text!r} is not a rule: {error}") from None
    return _Rule(count, match["format"], fits, pattern, replacement, match["all"] is not None, match["case"] or "")
