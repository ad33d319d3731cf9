"""Takes the pictures of docs/console.md: `python docs/take_screenshots.py http://127.0.0.1:8080 FOLDER`.

The broker should hold the topics `orders` and `clickstream` and a group `analytics` that is behind. Needs Chromium, and
pngquant to make the files small.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

DARK = "--blink-settings=preferredColorScheme=0"
PICTURES = {
    "console-overview": ("", "1280,860", []),
    "console-topic": ("topics/clickstream", "1280,900", []),
    "console-messages-dark": ("topics/orders/messages", "1280,800", [DARK]),
    "console-group-dark": ("group?id=analytics", "1280,860", [DARK]),
    "console-phone": ("topics/orders/messages", "500,860", []),
}


def take(url: str, target: Path, size: str, flags: list[str]) -> None:
    """One picture of one page."""
    browser = shutil.which("chromium") or shutil.which("google-chrome") or "chromium"
    with TemporaryDirectory() as profile:
        subprocess.run(
            [
                browser,
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--hide-scrollbars",
                "--disable-background-networking",
                f"--user-data-dir={profile}",
                f"--window-size={size}",
                f"--screenshot={target}",
                *flags,
                url,
            ],
            check=True,
            timeout=120,
            capture_output=True,
        )
    if shutil.which("pngquant"):
        subprocess.run(["pngquant", "--force", "--ext", ".png", "--quality", "70-95", str(target)], check=True)


if __name__ == "__main__":
    base, folder = sys.argv[1], Path(sys.argv[2])
    for name, (page, size, flags) in PICTURES.items():
        take(f"{base}/console/{page}", folder / f"{name}.png", size, flags)
