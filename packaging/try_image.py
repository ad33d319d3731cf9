"""`make test-image`: builds the image with buildah, which needs no daemon, and uses it as a cluster would.

The image stands on the Dockerfile's base image where a registry can be reached; elsewhere on a root file system of
Debian's with the same Python, which mmdebstrap makes of Debian's packages. What differs then is the base alone: every
step of the Dockerfile runs as it is. Needs Linux, root, and Debian's packages buildah and mmdebstrap.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).parents[1]
DOCKERFILE = ROOT / "packaging" / "docker" / "Dockerfile"
BASE = "localhost/ottla-base"
IMAGE = "localhost/ottla"
CERTIFICATES = "/etc/ssl/certs"
START_SECONDS = 120.0


class Builder:
    """buildah, with all that it stores in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        storage = ("--root", str(folder / "storage"), "--runroot", str(folder / "run"), "--storage-driver", "vfs")
        self.command = ("buildah", *storage)

    def __call__(self, *words: str) -> str:
        done = subprocess.run([*self.command, *words], check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        return done.stdout.strip()

    def base(self) -> list[str]:
        """What to build with where the Dockerfile's own base cannot be had."""
        wanted = re.search(r"^ARG PYTHON_IMAGE=python:(\S+)-slim$", DOCKERFILE.read_text(), re.MULTILINE)
        assert wanted is not None, "the Dockerfile names no base image"
        pulled = subprocess.run([*self.command, "pull", "--quiet", f"python:{wanted[1]}-slim"], check=False)
        if pulled.returncode == 0:
            return []
        print(f"no registry with python:{wanted[1]}-slim: building on Debian's python{wanted[1]}", flush=True)
        archive = self._folder / "root.tar"
        subprocess.run(
            [
                "mmdebstrap", "--quiet", "--variant=minbase", '--aptopt=Acquire::Check-Valid-Until "false"',
                f"--include=python{wanted[1]},python{wanted[1]}-venv,ca-certificates",
                f"--customize-hook=ln -s /usr/bin/python{wanted[1]} $1/usr/local/bin/python",
                "sid", str(archive),
            ],
            check=True,
        )  # fmt: skip
        container = self("from", "scratch")
        self("add", "--quiet", container, str(archive), "/")
        self("commit", "--quiet", "--rm", container, BASE)
        archive.unlink()
        return ["--build-arg", f"PYTHON_IMAGE={BASE}"]

    def build(self) -> None:
        self(
            "build", "--isolation", "chroot", "--format", "docker", "--pull-never", *self.base(),
            "--volume", f"{CERTIFICATES}:{CERTIFICATES}:ro", "--file", str(DOCKERFILE),
            "--ignorefile", f"{DOCKERFILE}.dockerignore", "--tag", IMAGE, ".",
        )  # fmt: skip


def check_config(config: dict[str, Any]) -> None:
    """Check what the image declares: user, signal, ports."""
    assert config["User"] == "9092:9092", config
    assert config["StopSignal"] == "SIGTERM", config
    assert set(config["ExposedPorts"]) == {"9092/tcp", "9644/tcp"}, config
    assert set(config["Volumes"]) == {"/var/lib/ottla"}, config
    assert config["Entrypoint"] == ["ottla", "serve", "--listen", "0.0.0.0:9092"], config


class Container:
    """The image, running."""

    def __init__(self, builder: Builder, name: str, config: dict[str, Any]) -> None:
        self._run = [*builder.command, "run", "--isolation", "chroot", "--user", config["User"], name, "--"]
        self._health = config["Healthcheck"]["Test"]
        self.process = subprocess.Popen(
            [*self._run, *config["Entrypoint"], "--advertise", "localhost"], stdout=subprocess.PIPE, text=True
        )

    def run(self, *words: str, given: str | None = None) -> str:
        done = subprocess.run([*self._run, *words], check=True, stdout=subprocess.PIPE, input=given, text=True)
        return done.stdout

    def stop(self) -> int:
        """Tell the broker to stop, as the image says; returns its exit code. buildah itself forwards no signal."""
        for folder in Path("/proc").glob("[0-9]*"):
            if (folder / "cmdline").read_bytes().startswith(b"/opt/ottla/bin/python\0/opt/ottla/bin/ottla\0serve\0"):
                os.kill(int(folder.name), signal.SIGTERM)
        return self.process.wait(60)

    def wait_until_healthy(self) -> None:
        """By the image's own health check."""
        assert self._health[0] == "CMD", self._health
        ends_at = time.monotonic() + START_SECONDS
        while subprocess.run([*self._run, *self._health[1:]], check=False, capture_output=True).returncode:
            assert self.process.poll() is None, "the broker has ended"
            assert time.monotonic() < ends_at, "the broker does not get healthy"
            time.sleep(0.5)


@contextmanager
def running(builder: Builder) -> Iterator[Container]:
    config = json.loads(builder("inspect", "--type", "image", IMAGE))["Docker"]["config"]
    check_config(config)
    name = builder("from", "--pull-never", IMAGE)
    it = Container(builder, name, config)
    try:
        yield it
    finally:
        if it.process.poll() is None:
            it.process.kill()
            it.process.wait()


def main() -> int:
    missing = [name for name in ("buildah", "mmdebstrap") if shutil.which(name) is None]
    if missing or os.geteuid():
        print(f"needs root and {' and '.join(missing) or 'nothing else'}: apt-get install buildah mmdebstrap")
        return 1
    if "--inside" not in sys.argv:
        # In a network of its own, so that the image's ports are free, and with its own processes, so that none is left.
        with TemporaryDirectory(prefix="ottla-image-") as folder:
            Builder(Path(folder)).build()
            inside = f"ip link set lo up && exec {sys.executable} {__file__} --inside {folder}"
            return subprocess.run(
                ["unshare", "--net", "--pid", "--fork", "--mount-proc", "sh", "-c", inside], check=False
            ).returncode
    builder = Builder(Path(sys.argv[-1]))
    with running(builder) as it:
        assert it.process.stdout is not None
        assert json.loads(it.process.stdout.readline())["event"] == "ready"
        it.wait_until_healthy()
        it.run("ottla", "produce", "greetings", given="hello from an image\n")
        assert it.run("ottla", "consume", "greetings") == "hello from an image\n"
        assert it.run("id", "-u").strip() == "9092"
        owned = "find / -xdev -user ottla -type f -not -path '/proc/*' 2>/dev/null || true"
        outside = [path for path in it.run("sh", "-c", owned).split() if not path.startswith("/var/lib/ottla/")]
        assert not outside, outside
        assert it.stop() == 0, it.process.returncode
    print("the image is built, gets healthy, serves, writes to its volume alone, and stops in order")
    return 0


if __name__ == "__main__":
    sys.exit(main())
