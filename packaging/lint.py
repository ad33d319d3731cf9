"""`make lint-packaging`: the files for containers, compose, Kubernetes and Helm, by the linters of each.

The chart is drawn with several sets of values, and what comes out is checked as Kubernetes would; that needs `helm`
(HELM names it), and is left out with a sentence where there is none.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import yaml
from compose_spec.models import ComposeSpecification

PACKAGING = Path(__file__).parent
BIN = Path(sys.executable).parent
CHART = PACKAGING / "helm" / "ottla"
VALUES: tuple[list[str], ...] = (
    [],
    ["replicas=3", "metadata=etcd://etcd:2379/ottla", "settings.min\\.insync\\.replicas=2"],
    ["persistence.enabled=false", "service.type=LoadBalancer", "settings.log\\.retention\\.bytes=10000000000"],
)


def main() -> int:
    """Run them all; the exit code is 1 if one of them finds something."""
    run([BIN / "hadolint", PACKAGING / "docker" / "Dockerfile"])
    for path in sorted((PACKAGING / "compose").glob("*.yaml")):
        content = yaml.safe_load(path.read_text())
        ComposeSpecification(**{name: value for name, value in content.items() if not name.startswith("x-")})
        print(f"{path.name}: sound")
    validate(PACKAGING / "kubernetes" / "ottla.yaml")
    helm = os.environ.get("HELM") or shutil.which("helm")
    if helm is None:
        print("no helm: the chart is not checked")
        return 0
    run([helm, "lint", "--strict", CHART])
    template: list[str | Path] = [helm, "template", "orders", CHART, "--kube-version", "1.33.0"]
    for number, values in enumerate(VALUES):
        drawn = Path(os.environ.get("TMPDIR", "/tmp")) / f"ottla-chart-{os.getpid()}-{number}.yaml"
        flags = [flag for value in values for flag in ("--set", value)]
        drawn.write_bytes(run([*template, *flags], capture=True))
        try:
            validate(drawn)
        finally:
            drawn.unlink()
    refused = subprocess.run(
        [helm, "template", "orders", CHART, "--set", "replicas=3"], capture_output=True, check=False
    )
    assert refused.returncode, "three brokers without etcd would be three clusters"
    return 0


def validate(path: Path) -> None:
    """Check what is in a file against the schemas of Kubernetes."""
    run([BIN / "kubernetes-validate", "--strict", "--quiet", path])
    print(f"{path.name}: sound")


def run(command: list[str | Path], *, capture: bool = False) -> bytes:
    """Run a command; CalledProcessError if it fails."""
    return subprocess.run(command, check=True, stdout=subprocess.PIPE if capture else None).stdout or b""


if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.CalledProcessError as error:
        sys.exit(f"{Path(error.cmd[0]).name} found something")
