"""The state of an object belongs to its class: what still changes the state of another file's objects.

`server/apis/` is left out: it fills in the fields of messages, which have no state of their own.
"""

from __future__ import annotations

from tests.rooms import BROKER, ROOT, sources
from tests.walls import over_the_wall

ROOMS = (*BROKER, "client", "console", "metastore", "registry", "rest", "schemas")

FOREIGN = {
    "client/tls.py": 3,
    "console/door.py": 2,
    "coordinator/group/streams/records.py": 1,
    "coordinator/group/topics.py": 2,
    "registry/formats/avro.py": 14,
    "server/http/client_certificates.py": 1,
    "server/http/server.py": 6,
    "server/quotas/clients.py": 2,
    "security/kerberos.py": 1,
    "security/tls.py": 8,
    "settings/client_match.py": 2,
}
"""How many fields a file assigns of messages, of syntax trees, of exceptions, and of the objects of libraries, which
want it so."""

LEFT = {
    "server/network/connection.py": 3,
    "server/network/dispatch.py": 7,
    "server/network/io_wait.py": 2,
    "server/network/large_requests.py": 3,
    "replica/fetch_session.py": 8,
    "replica/manager.py": 6,
    "replica/following/replica_fetcher.py": 1,
}
"""How many fields of Ottla's own objects a file may assign at most. Nothing is added here."""


def test_state_is_changed_by_its_own_class_only() -> None:
    files = [path for path in sources(*ROOMS) if path.relative_to(ROOT).parts[:2] != ("server", "apis")]
    assert len(files) > 250
    wrong = []
    for path in files:
        name = str(path.relative_to(ROOT))
        found = over_the_wall(path)
        if len(found) > FOREIGN.get(name, 0) + LEFT.get(name, 0):
            wrong += [f"{name}:{each}" for each in found]
    assert wrong == []
