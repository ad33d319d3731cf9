"""Text from clients, made safe to show: characters that would be invisible or reverse the text are named instead."""

from __future__ import annotations

import re
from typing import Final

# C0 and C1 controls except tab and line feed, lone surrogates, and the marks that reorder or hide text.
_UNSHOWABLE: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)
_CONTROL_PICTURES: Final = 0x2400


def printable(text: str) -> str:
    """The text with control characters as their pictures (␀) and marks as code points (⟨U+202E⟩)."""
    return _UNSHOWABLE.sub(_name, text)


def is_plain(text: str) -> bool:
    """Whether the text is shown as it is."""
    return _UNSHOWABLE.search(text) is None


def _name(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code == 0x0D:
        return "␍"
    if code < 0x20:
        return chr(_CONTROL_PICTURES + code)
    return "␡" if code == 0x7F else f"⟨U+{code:04X}⟩"
