"""Rules from Kerberos principals to users, as Kafka's KerberosRule applies them."""

from __future__ import annotations

import pytest

from ottla.security.distinguished_name import RuleError
from ottla.security.errors import NoRuleError
from ottla.security.kerberos_names import KerberosRules


@pytest.mark.parametrize(
    ("rules", "principal", "user"),
    [
        ([], "alice@HOME", "alice"),
        (["DEFAULT"], "kafka/broker.example.org@HOME", "kafka"),
        (["RULE:[1:$1]"], "alice@AWAY", "alice"),
        (["RULE:[1:$1-$0]"], "alice@AWAY", "alice-AWAY"),
        (["RULE:[2:$1](k.*)s/^k/c/", "DEFAULT"], "kafka/host@AWAY", "cafka"),
        (["RULE:[2:$1](x.*)", "DEFAULT"], "kafka/host@HOME", "kafka"),
        (["RULE:[1:$1@$0](.*@AWAY)s/@.*//"], "alice@AWAY", "alice"),
        (["RULE:[1:$1]s/l/L/"], "belle@AWAY", "beLle"),
        (["RULE:[1:$1]s/l/L/g"], "belle@AWAY", "beLLe"),
        (["RULE:[1:$1]s/(.)(.)/$2$1/"], "alice@AWAY", "laice"),
        (["RULE:[1:$1]/L"], "ALICE@AWAY", "alice"),
        (["RULE:[1:$1]s/a/b/U"], "alice@AWAY", "BLICE"),
        (["RULE:[2:$2.$1]"], "kafka/host@AWAY", "host.kafka"),
        # Tested cases of Kafka's KerberosNameTest.
        (["RULE:[1:$1](App\\..*)s/App\\.(.*)/$1/g", "DEFAULT"], "App.service-name@REALM.COM", "service-name"),
        (["RULE:[2:$1](App\\..*)s/App\\.(.*)/$1/g"], "App.service-name/example.com@REALM.COM", "service-name"),
    ],
)
def test_who_it_is(rules: list[str], principal: str, user: str) -> None:
    assert KerberosRules(rules, "HOME").user(principal) == user


@pytest.mark.parametrize(
    ("rules", "principal"),
    [
        (["DEFAULT"], "alice@AWAY"),
        (["RULE:[1:$1](b.*)"], "alice@AWAY"),
        (["RULE:[2:$1]"], "alice@AWAY"),
        (["RULE:[1:$1@$0]"], "alice@AWAY"),
        (["RULE:[1:$1]s/.*//"], "alice@AWAY"),
        (["DEFAULT"], "@HOME"),
        (["DEFAULT"], "alice"),
        (["DEFAULT"], "alice@HOME@HOME"),
        (["DEFAULT"], "a/b/c@HOME"),
    ],
)
def test_nobody(rules: list[str], principal: str) -> None:
    with pytest.raises(NoRuleError):
        KerberosRules(rules, "HOME").user(principal)


@pytest.mark.parametrize(
    "rule", ["", "default", "RULE:[1:$2]", "RULE:[1:$]", "RULE:[1:$1](", "RULE:[1:$1]s/(/x/", "RULE:[1:$1]s/a/$1/", "x"]
)
def test_what_is_no_rule(rule: str) -> None:
    with pytest.raises(RuleError, match="is not a rule"):
        KerberosRules([rule], "HOME")
