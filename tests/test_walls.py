"""The state of an object belongs to its class: no file assigns the fields of objects that another file defines.

Handlers (`server/apis/`) and the codecs tuned by hand (`kproto/hot/`) fill in the fields of messages, which have no
state of their own. Of handlers only what they do to requests and connections is looked at.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

from tests.rooms import ROOT, sources

NOT_PRODUCT = {"simulation"}

FILL_MESSAGES = {("server", "apis"), ("kproto", "hot")}

FOREIGN = {
    "cli/doctor/http.py": 2,
    "cli/serve/trio_import.py": 7,
    "cli/where.py": 1,
    "client/tls.py": 3,
    "console/access_check.py": 2,
    "coordinator/group/streams/records.py": 1,
    "kproto/api_keys.py": 1,
    "kproto/errors.py": 1,
    "kproto/headers.py": 1,
    "kproto/schema.py": 2,
    "pipeline/tables/iceberg/table.py": 1,
    "proxy/cached_fetch.py": 12,
    "proxy/filters/chain.py": 1,
    "proxy/filters/group_protocol.py": 9,
    "proxy/filters/records.py": 7,
    "runtime/client_regex.py": 2,
    "proxy/rewriting.py": 2,
    "proxy/versions.py": 3,
    "registry/formats/avro.py": 14,
    "runtime/errors.py": 3,
    "runtime/logs.py": 2,
    "server/http/client_certificates.py": 1,
    "server/http/server.py": 6,
    "server/network/io_wait.py": 2,
    "server/quotas/clients.py": 2,
    "security/kerberos.py": 1,
    "security/tls.py": 8,
    "testing/faults/answers.py": 6,
    "testing/faults/dispatcher.py": 1,
}
"""How many fields a file assigns of messages, of syntax trees, of exceptions, of enumerations' members, and of the
objects of libraries, which want it so."""


def own_fields(tree: ast.Module) -> set[str]:
    """The fields of the classes that a file defines."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and not _is_immutable(node):
            found |= {
                part.target.id
                for part in node.body
                if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name)
            }
            for part in ast.walk(node):
                if isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name) and part.value.id == "self":
                    found.add(part.attr)
    return found


def _is_immutable(node: ast.ClassDef) -> bool:
    """Whether nobody can assign the fields of its objects, or it only says which ones others have."""
    bases = [ast.unparse(base).partition("[")[0] for base in node.bases]
    return (
        "NamedTuple" in bases
        or "Protocol" in bases
        or any("frozen=True" in ast.unparse(decorator) for decorator in node.decorator_list)
    )


def assigned_elsewhere(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """(line, field) of the fields that are assigned through another name than `self`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
            is_own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            if not is_own:
                yield node.lineno, node.attr


def over_the_wall(path: Path) -> list[str]:
    """`line: field` of each field that a file assigns and that no class in it has."""
    tree = ast.parse(path.read_text())
    fields = own_fields(tree)
    # The deadline of Trio's cancel scopes is made to be assigned.
    return [
        f"{line}: {field}" for line, field in assigned_elsewhere(tree) if field not in fields and field != "deadline"
    ]


def product_rooms() -> list[str]:
    """The folders that are shipped."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    shipped: list[str] = project["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"]
    return [room for room in shipped if room not in NOT_PRODUCT]


def test_a_variable_of_a_method_is_no_field() -> None:
    source = "class A:\n    field: int\n    def f(self) -> None:\n        self.own = 1\n        local: int = 2\n"
    assert own_fields(ast.parse(source)) == {"field", "own"}


def test_state_is_changed_by_its_own_class_only() -> None:
    files = [path for path in sources(*product_rooms()) if path.relative_to(ROOT).parts[:2] not in FILL_MESSAGES]
    assert len(files) > 1000
    found = {str(path.relative_to(ROOT)): over_the_wall(path) for path in files}
    wrong = [f"{name}:{each}" for name, some in found.items() if len(some) > FOREIGN.get(name, 0) for each in some]
    assert wrong == []
    assert {name: len(some) for name, some in found.items() if some} == FOREIGN


def test_handlers_change_no_state_of_requests_and_connections() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in sources("server/apis")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        if ast.unparse(node.value).rpartition(".")[2].strip("_") in ("context", "connection", "client", "broker")
    ]
    assert wrong == []
