"""Rules of access, quotas, users with SCRAM and features: made, described, removed; filters and odd values of each."""

from __future__ import annotations

from typing import Any

from compat_tests.differential.draft import Draft

_STEPS = 40
_NONSENSE = 0.01
_MATCH = 2
_PRINCIPALS = ("User:~alice", "User:~bob")
_QUOTAS: dict[str, tuple[float, ...]] = {
    "producer_byte_rate": (1000.0, 0.0, -1.0, 0.5, 1e300),
    "consumer_byte_rate": (1000.0, 1.5),
    "request_percentage": (50.0, 0.0, 1000.0, -0.1),
    "controller_mutation_rate": (10.0, 0.0),
    "connection_creation_rate": (10.0, 0.5, 0.0),
    "no_such_rate": (1.0,),
}


class _Access:
    def __init__(self, draft: Draft) -> None:
        self.draft = draft

    def _acl(self) -> dict[str, Any]:
        draft = self.draft
        # What means nothing is seldom: what follows it is not looked at.
        resource_type = draft.odd(draft.odd(draft.pick((2, 3, 5, 6, 7)), 4), 0, 1, 99, -1, chance=_NONSENSE)
        return {
            "resource_type": resource_type,
            "resource_name": draft.odd("kafka-cluster" if resource_type == 4 else "~res", "*", "", "~", chance=0.15),
            "pattern_type": draft.odd(draft.odd(3, 4, chance=0.25), 0, 1, 2, 9, chance=_NONSENSE),
            "principal": draft.odd(draft.pick(_PRINCIPALS), "User:*", "Group:~g", "~nobody", "User:", "", chance=0.15),
            "host": draft.odd("*", "127.0.0.1", "", chance=0.15),
            "operation": draft.odd(draft.pick((2, 3, 4, 8, 10, 11)), *range(16), chance=0.1),
            "permission_type": draft.odd(draft.pick((2, 3)), 0, 1, 9, chance=_NONSENSE),
        }

    def create_acls(self) -> None:
        creations = []
        for _ in range(self.draft.pick((1, 1, 2))):
            acl = self._acl()
            creations.append(acl | {"resource_pattern_type": acl.pop("pattern_type")})
        for creation in creations:
            creation.pop("pattern_type", None)
        self.draft.ask("CREATE_ACLS", {"creations": creations})

    def _filter(self) -> dict[str, Any]:
        draft = self.draft
        acl = self._acl()
        return {
            "resource_type_filter": draft.odd(acl["resource_type"], 1, chance=0.5),
            "resource_name_filter": draft.odd("~res", None, "~resource", chance=0.2),
            "pattern_type_filter": draft.odd(acl["pattern_type"], 1, 2, chance=0.5),
            "principal_filter": draft.odd(acl["principal"], None, chance=0.4),
            "host_filter": draft.odd(acl["host"], None, chance=0.4),
            "operation": draft.odd(acl["operation"], 1, chance=0.6),
            "permission_type": draft.odd(acl["permission_type"], 1, chance=0.6),
        }

    def describe_acls(self) -> None:
        self.draft.ask("DESCRIBE_ACLS", self._filter())

    def delete_acls(self) -> None:
        # Never those of everybody, which a pattern that matches would be, too: other histories go on.
        named = self._filter() | {"resource_name_filter": "~res"}
        if named["pattern_type_filter"] == _MATCH:
            named["principal_filter"] = "User:~alice"
        self.draft.ask("DELETE_ACLS", {"filters": [named]})

    def _entity(self) -> list[dict[str, Any]]:
        draft = self.draft
        user = {"entity_type": "user", "entity_name": "~alice"}
        client = {"entity_type": "client-id", "entity_name": draft.odd("~client", "", chance=0.05)}
        odd = {"entity_type": draft.pick(("ip", "group", "")), "entity_name": draft.pick(("10.0.0.1", "~x"))}
        return draft.odd(draft.pick(([user], [client], [user, client])), [odd], [], [user, odd], chance=0.12)

    def alter_quotas(self) -> None:
        draft = self.draft
        ops = []
        for _ in range(draft.pick((1, 1, 2))):
            key = draft.pick(list(_QUOTAS))
            ops.append({"key": key, "value": draft.pick(_QUOTAS[key]), "remove": draft.chance(0.25)})
        entries = [{"entity": self._entity(), "ops": ops}]
        draft.ask("ALTER_CLIENT_QUOTAS", {"entries": entries, "validate_only": draft.chance(0.1)})

    def describe_quotas(self) -> None:
        draft = self.draft
        components = [
            {
                "entity_type": draft.odd(kind, "ip", "nonsense", chance=0.06),
                "match_type": draft.odd(0, 1, 2, 3, chance=0.3),
                "match": draft.odd(name, None, chance=0.1),
            }
            for kind, name in draft.pick(
                ((("user", "~alice"),), (("client-id", "~client"),), (("user", "~alice"), ("client-id", "~client")))
            )
        ]
        draft.ask("DESCRIBE_CLIENT_QUOTAS", {"components": components, "strict": draft.chance(0.4)})

    def alter_users(self) -> None:
        draft = self.draft
        upsertion = {
            "name": draft.odd("~alice", "~bob", "", chance=0.2),
            "mechanism": draft.odd(1, 2, 0, 3, chance=0.25),
            "iterations": draft.odd(4096, 4095, 16384, 16385, 0, -1, chance=0.25),
            "salt": {"$bytes": draft.odd("00" * 16, "", "00", chance=0.1)},
            "salted_password": {"$bytes": draft.odd("11" * 32, "11" * 64, "", chance=0.3)},
        }
        deletion = {"name": draft.pick(("~alice", "~bob", "")), "mechanism": draft.odd(1, 2, 0, 9)}
        fields = {
            "upsertions": [upsertion] * draft.odd(1, 0, 2, chance=0.3),
            "deletions": [deletion] * draft.odd(0, 1, 2, chance=0.3),
        }
        draft.ask("ALTER_USER_SCRAM_CREDENTIALS", fields)

    def describe_users(self) -> None:
        draft = self.draft
        users = draft.odd([{"name": "~alice"}, {"name": "~bob"}], None, [], [{"name": "~alice"}] * 2, [{"name": ""}])
        draft.ask("DESCRIBE_USER_SCRAM_CREDENTIALS", {"users": users})

    def validate_features(self) -> None:
        """Only validated: a level that is changed is changed for all."""
        draft = self.draft
        update = {
            "feature": draft.pick(("group.version", "transaction.version", "share.version", "no.such", "")),
            "max_version_level": draft.pick((0, 1, 2, 3, -1, 99)),
            "upgrade_type": draft.odd(1, 2, 3, 0, 9, chance=0.4),
        }
        fields = {"timeout_ms": 10_000, "feature_updates": [update], "validate_only": True}
        draft.ask("UPDATE_FEATURES", fields, draft.pick((1, 2)))


def write(draft: Draft) -> None:
    access = _Access(draft)
    actions = (
        access.create_acls, access.describe_acls, access.delete_acls, access.alter_quotas, access.describe_quotas,
        access.alter_users, access.describe_users, access.validate_features,
    )  # fmt: skip
    while len(draft) < _STEPS:
        draft.random.choices(actions, (4, 4, 1, 4, 4, 3, 2, 1))[0]()
