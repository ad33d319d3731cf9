"""docs/monitoring.md and the dashboard say what the code says."""

from __future__ import annotations

import json
import re
import runpy
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ottla.server.telemetry.catalog import SECTIONS

DOCS = Path(__file__).parents[3] / "docs"

METRICS = {metric.name: metric for _, section in SECTIONS for metric in section.METRICS}


def test_the_page_is_current() -> None:
    generator = runpy.run_path(str(DOCS / "generate_monitoring.py"))
    current = (DOCS / "monitoring.md").read_text(encoding="utf-8")
    assert current == generator["page"](), "run `python docs/generate_monitoring.py`"


def test_the_page_names_no_metric_that_does_not_exist() -> None:
    named = set(re.findall(r"`((?:ottla|kafka|process)_\w+)", (DOCS / "monitoring.md").read_text(encoding="utf-8")))
    assert named - METRICS.keys() == {"kafka_exporter"} - METRICS.keys() & named


def test_the_dashboard_is_current() -> None:
    generator = runpy.run_path(str(DOCS / "generate_dashboard.py"))
    current = json.loads((DOCS / "grafana" / "ottla.json").read_text(encoding="utf-8"))
    assert current == generator["dashboard"](), "run `python docs/generate_dashboard.py`"


def test_the_dashboard_asks_for_metrics_and_labels_that_exist() -> None:
    panels: list[dict[str, Any]] = json.loads((DOCS / "grafana" / "ottla.json").read_text(encoding="utf-8"))["panels"]
    asked = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    assert len(asked) > 25
    for expression in asked:
        names = re.findall(r"\b(?:ottla|kafka|process)_\w+", expression)
        assert names, expression
        for name in names:
            metric = METRICS[name.removesuffix("_bucket") if name not in METRICS else name]
            labels = {*metric.labels, "instance", "le"}
            used = re.findall(r"(\w+)=~?\"", expression) + re.findall(
                r"\w+", "".join(re.findall(r"by \(([^)]*)\)", expression))
            )
            assert set(used) <= labels, expression


RULES = DOCS / "prometheus" / "ottla.rules.yml"
RULE_TESTS = Path(__file__).with_name("ottla.rules.test.yml")


def test_the_alerts_ask_for_metrics_and_labels_that_exist() -> None:
    text = RULES.read_text(encoding="utf-8")
    rules = re.findall(r"- alert: (\w+)\n +expr: (.*)\n((?: {8,}.*\n)+)", text)
    assert len(rules) == text.count("- alert:") >= 10
    assert len({name for name, _, _ in rules}) == len(rules)
    for name, expression, rest in rules:
        metrics = re.findall(r"\b(?:ottla|kafka|process)_\w+", expression)
        assert metrics or "up{" in expression, name
        labels = {"instance", "job", "le"}
        for metric in metrics:
            labels |= {*METRICS[metric if metric in METRICS else metric.removesuffix("_bucket")].labels}
        assert set(re.findall(r"(\w+)=~?\"", expression)) <= labels, name
        by = re.findall(r"by \(([^)]*)\)", expression)
        shown = re.findall(r"\$labels\.(\w+)", rest)
        kept = set(re.findall(r"\w+", " ".join(by))) if by else labels
        assert set(shown) <= kept, name
        assert "severity: " in rest, name


def test_every_alert_is_tested() -> None:
    tested = re.findall(r"alertname: (\w+)\n(?: {8}(exp_alerts):)?", RULE_TESTS.read_text(encoding="utf-8"))
    for name in re.findall(r"- alert: (\w+)", RULES.read_text(encoding="utf-8")):
        assert (name, "") in tested, f"nothing shows that {name} is silent at first"
        assert (name, "exp_alerts") in tested, f"nothing shows that {name} is raised"


def test_prometheus_raises_the_alerts() -> None:
    """`make test-alerts`."""
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed: Debian has it in the package prometheus")
    for command, file in (("check", RULES), ("test", RULE_TESTS)):
        done = subprocess.run(["promtool", command, "rules", str(file)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_panels_do_not_overlap() -> None:
    panels = json.loads((DOCS / "grafana" / "ottla.json").read_text(encoding="utf-8"))["panels"]
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= 24
        assert taken.isdisjoint(cells)
        taken |= cells
    assert len({panel["id"] for panel in panels}) == len(panels)
