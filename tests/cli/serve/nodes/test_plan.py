"""Which nodes `ottla serve --nodes` starts, and what it refuses."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import pytest

from ottla.cli import CommandError, parser_of
from ottla.cli.serve.nodes.plan import Plan, check, make_plan
from ottla.settings.config import ConfigError


def plan(tmp_path: Path, *flags: str) -> Plan:
    folder = () if "--memory" in flags else ("--data-dir", str(tmp_path / "data"))
    return make_plan(parser_of("serve").parse_args([*folder, *flags]))


def listeners(made: Plan) -> list[list[str]]:
    return [list(config.listeners) for config in made.configs]


def test_ids_and_ports_count_up_from_those_of_the_first_node(tmp_path: Path) -> None:
    made = plan(
        tmp_path, "--nodes", "3", "--listen", "[::1]:9092", "--advertise", "a.example:19092", "--set", "node.id=5"
    )
    assert [config.node_id for config in made.configs] == [5, 6, 7]
    assert listeners(made) == [[f"PLAINTEXT://[::1]:{port}"] for port in (9092, 9093, 9094)]
    told = [list(config.advertised_listeners or ()) for config in made.configs]
    assert told == [[f"PLAINTEXT://a.example:{port}"] for port in (19092, 19093, 19094)]


def test_listeners_of_a_file_count_up_too(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        "broker.id=1\nlisteners=IN://127.0.0.1:9092,OUT://0.0.0.0:9192\n"
        "advertised.listeners=IN://127.0.0.1:9092,OUT://b.example:0\nlistener.security.protocol.map=IN:PLAINTEXT,OUT:PLAINTEXT\n"
    )
    made = plan(tmp_path, "--nodes", "2", "--config", str(file))
    assert listeners(made)[1] == ["IN://127.0.0.1:9093", "OUT://0.0.0.0:9193"]
    assert list(made.configs[1].advertised_listeners or ()) == ["IN://127.0.0.1:9093", "OUT://b.example:0"]
    assert [config.node_id for config in made.configs] == [1, 2]


def test_a_list_gives_each_node_its_own_address(tmp_path: Path) -> None:
    made = plan(tmp_path, "--nodes", "2", "--listen", "127.0.0.1:9092,10.0.0.1:7000", "--advertise", "a,b")
    assert listeners(made) == [["PLAINTEXT://127.0.0.1:9092"], ["PLAINTEXT://10.0.0.1:7000"]]
    assert [list(config.advertised_listeners or ()) for config in made.configs] == [
        ["PLAINTEXT://a:0"],
        ["PLAINTEXT://b:0"],
    ]


def test_free_ports_stay_free_and_pages_lie_behind_the_common_one(tmp_path: Path) -> None:
    made = plan(tmp_path, "--nodes", "2", "--port", "0", "--http", "127.0.0.1:9644")
    assert listeners(made) == [["PLAINTEXT://127.0.0.1:0"]] * 2
    assert made.page is not None
    assert made.page.port == 9644
    assert [config.ottla_http_listen for config in made.configs] == ["127.0.0.1:9645", "127.0.0.1:9646"]
    again = made.nodes[0].pinned("PLAINTEXT://127.0.0.1:40001", "http://127.0.0.1:9645", {})
    assert list(again.config.listeners) == ["PLAINTEXT://127.0.0.1:40001"]


def test_ports_of_the_registry_and_the_rest_proxy_count_up_and_stay(tmp_path: Path) -> None:
    made = plan(tmp_path, "--nodes", "2", "--registry", "--rest", "[::1]:9000")
    assert [config.ottla_registry_listeners for config in made.configs] == ["127.0.0.1:8081", "127.0.0.1:8082"]
    assert [config.ottla_rest_listeners for config in made.configs] == ["[::1]:9000", "[::1]:9001"]
    free = plan(tmp_path, "--nodes", "2", "--rest", "127.0.0.1:0").nodes[1]
    assert free.config.ottla_rest_listeners == "127.0.0.1:0"
    urls = {"rest": "http://127.0.0.1:40002", "registry": None}
    again = free.pinned("PLAINTEXT://127.0.0.1:40001", None, urls)
    assert again.config.ottla_rest_listeners == "127.0.0.1:40002"
    assert again.config.ottla_registry_listeners is None


def test_auto_is_a_node_for_each_core(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 3, 5})
    assert len(plan(tmp_path, "--nodes", "auto", "--port", "0").nodes) == 3


def test_topics_of_coordinators_have_one_replica_unless_more_are_asked_for(tmp_path: Path) -> None:
    (one, _) = plan(tmp_path, "--nodes", "2").configs
    assert (one.offsets_topic_replication_factor, one.transaction_state_log_min_isr) == (1, 1)
    (two, _) = plan(tmp_path, "--nodes", "2", "--set", "offsets.topic.replication.factor=2").configs
    assert two.offsets_topic_replication_factor == 2


def test_with_secure_one_certificate_names_the_hosts_of_all_nodes(tmp_path: Path) -> None:
    x509 = pytest.importorskip("cryptography.x509")
    made = plan(tmp_path, "--secure", "--nodes", "2", "--listen", "127.0.0.1:9092,10.0.0.1:7000", "--advertise", "a,b")
    assert listeners(made) == [["SASL_SSL://127.0.0.1:9092"], ["SASL_SSL://10.0.0.1:7000"]]
    assert [list(config.advertised_listeners or ()) for config in made.configs] == [
        ["SASL_SSL://a:0"],
        ["SASL_SSL://b:0"],
    ]
    assert made.secure == tmp_path / "data"
    (certificate,) = x509.load_pem_x509_certificates((made.secure / "security" / "broker.pem").read_bytes())
    named = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert {"a", "b"} <= set(named.get_values_for_type(x509.DNSName))
    assert "10.0.0.1" in {str(address) for address in named.get_values_for_type(x509.IPAddress)}


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--memory"], "--memory is for one node"),
        (["--memory", "--secure"], "--memory is for one node"),
        (["--set", "node.id=-1"], "node.id=-1 is for one node"),
        (["--set", "ottla.metadata.store=memory"], "is for one node"),
        (["--port", "65534"], "leaves no room for the ports of all nodes"),
        (["--listen", "127.0.0.1:0,127.0.0.1:0"], "names 2 addresses for 3 nodes: name the first one, or one for each"),
        (["--listen", "127.0.0.1:40000", "--listen", "127.0.0.1:40001"], "port 40001 is needed twice"),
        (["--set", "ottla.memory.budget.bytes=1000GB"], "start at most 1, or lower ottla.memory.budget.bytes"),
        (["--set", "num.partitons=3"], "Did you mean num.partitions?"),
    ],
)
def test_what_cannot_be_is_said_in_a_sentence(tmp_path: Path, flags: list[str], words: str) -> None:
    with pytest.raises((CommandError, ConfigError)) as raised:
        check(plan(tmp_path, "--nodes", "3", *flags))
    assert words in str(raised.value)
    assert not (tmp_path / "data").exists()


def test_how_many_is_a_number_from_one_on() -> None:
    parser = parser_of("serve")
    parser.exit_on_error = False
    with pytest.raises(argparse.ArgumentError, match="'0' is not a number of nodes: write 1 or more, or auto"):
        parser.parse_args(["--nodes", "0"])
