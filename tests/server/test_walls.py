"""The state of an object belongs to its class: what in the server still changes the state of another file's objects.

`server/apis/` is left out: it fills in the fields of messages, which have no state of their own.
"""

from __future__ import annotations

from pathlib import Path

from tests.walls import over_the_wall

SERVER = Path(__file__).parents[2] / "server"

FOREIGN = {
    "coordinator/group/streams/records.py": 1,
    "coordinator/group/topics.py": 2,
    "errors.py": 3,
    "http/server.py": 6,
    "quotas/clients.py": 2,
    "security/kerberos.py": 1,
    "security/tls.py": 7,
    "settings/client_match.py": 2,
}
"""How many fields a file assigns of messages, of exceptions, and of the objects of libraries, which want it so."""

LEFT = {
    "coordinator/group/classic/groups.py": 1,
    "main.py": 2,
    "network/connection.py": 3,
    "network/dispatch.py": 12,
    "network/io_wait.py": 2,
    "network/large_requests.py": 3,
    "replica/fetch_session.py": 8,
    "replica/manager.py": 6,
    "replica/following/replica_fetcher.py": 1,
    "share/fetch.py": 2,
    "share/in_flight.py": 22,
    "share/leader.py": 1,
    "share/manager.py": 1,
    "share/partition.py": 6,
    "wiring/parts.py": 3,
}
"""How many fields of the server's own objects a file may assign at most. Nothing is added here."""


def test_state_is_changed_by_its_own_class_only() -> None:
    files = [path for path in sorted(SERVER.rglob("*.py")) if "apis" not in path.relative_to(SERVER).parts]
    assert len(files) > 250
    wrong = []
    for path in files:
        name = str(path.relative_to(SERVER))
        found = over_the_wall(path)
        if len(found) > FOREIGN.get(name, 0) + LEFT.get(name, 0):
            wrong += [f"{name}:{each}" for each in found]
    assert wrong == []
