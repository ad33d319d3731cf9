"""The state of an object belongs to its class: no file assigns the fields of objects that another file defines.

Of `server/apis/` only what it does to requests and connections is looked at: it fills in the fields of messages, which
have no state of their own.
"""

from __future__ import annotations

import ast

from tests.rooms import BROKER, ROOT, sources
from tests.walls import over_the_wall, own_fields

ROOMS = (*BROKER, "client", "console", "metastore", "metrics", "registry", "rest", "runtime", "schemas", "tiers")

FOREIGN = {
    "client/tls.py": 3,
    "console/access_check.py": 2,
    "coordinator/group/streams/records.py": 1,
    "coordinator/group/topics.py": 2,
    "registry/formats/avro.py": 14,
    "runtime/errors.py": 3,
    "runtime/logs.py": 2,
    "server/http/client_certificates.py": 1,
    "server/http/server.py": 6,
    "server/network/io_wait.py": 2,
    "server/quotas/clients.py": 2,
    "security/kerberos.py": 1,
    "security/tls.py": 8,
    "settings/client_match.py": 2,
}
"""How many fields a file assigns of messages, of syntax trees, of exceptions, and of the objects of libraries, which
want it so."""


def test_a_variable_of_a_method_is_no_field() -> None:
    source = "class A:\n    field: int\n    def f(self) -> None:\n        self.own = 1\n        local: int = 2\n"
    assert own_fields(ast.parse(source)) == {"field", "own"}


def test_state_is_changed_by_its_own_class_only() -> None:
    files = [path for path in sources(*ROOMS) if path.relative_to(ROOT).parts[:2] != ("server", "apis")]
    assert len(files) > 250
    wrong = []
    for path in files:
        name = str(path.relative_to(ROOT))
        found = over_the_wall(path)
        if len(found) > FOREIGN.get(name, 0):
            wrong += [f"{name}:{each}" for each in found]
    assert wrong == []


def test_handlers_change_no_state_of_requests_and_connections() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in sources("server/apis")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        if ast.unparse(node.value).rpartition(".")[2].strip("_") in ("context", "connection", "client", "broker")
    ]
    assert wrong == []
