"""What may differ between two JSON Schemas: the names that Confluent's registry gives to differences, which its clients
know, and a sentence for each that breaks something.
"""

from __future__ import annotations

from typing import Final

#: By the end of a difference's name. Those that a reader accepts are not in here.
_SENTENCES: Final = {
    "_ADDED": "at '{path}' the {new} schema demands something that the {old} one does not",
    "_INCREASED": "the {new} schema raises the limit at '{path}' above that of the {old} one",
    "_DECREASED": "the {new} schema lowers the limit at '{path}' below that of the {old} one",
    "_CHANGED": "the {new} and the {old} schema do not say the same at '{path}'",
    "_NARROWED": "of what the {old} schema allows at '{path}' the {new} one allows less",
    "_EXTENDED": "what the {new} schema demands at '{path}' is more than the {old} one does",
    "_REMOVED": "something that the {old} schema allows at '{path}' is gone from the {new} one",
}
_TYPE: Final = "the types that the {new} and the {old} schema allow at '{path}' do not fit"
_OPEN: Final = "the {old} schema allows anything at '{path}', where the {new} one describes a value"
_CLOSED: Final = "the {old} schema has a value at '{path}', and the {new} one allows none there"
_GONE: Final = "the {new} schema allows at '{path}' not all that the {old} one describes there"
_NEW: Final = "the {new} schema describes at '{path}' what the {old} one does not allow there"

_OWN: Final = {
    "TYPE_CHANGED": _TYPE,
    "TYPE_NARROWED": _TYPE,
    "COMBINED_TYPE_CHANGED": _TYPE,
    "COMBINED_TYPE_SUBSCHEMAS_CHANGED": _TYPE,
    "ENUM_ARRAY_CHANGED": "the values that the {new} schema lists at '{path}' are not those of the {old} one",
    "MULTIPLE_OF_EXPANDED": "numbers at '{path}' are multiples of more in the {new} schema than in the {old} one",
    "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL": "the {new} schema requires a property at '{path}', which the "
    "{old} one does not have",
    "PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL": _OPEN,
    "ITEM_ADDED_TO_OPEN_CONTENT_MODEL": _OPEN,
    "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL": _CLOSED,
    "ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL": _CLOSED,
    "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": _GONE,
    "ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": _GONE,
    "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": _NEW,
    "ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": _NEW,
}


def message(name: str, path: str, new: str, old: str) -> str:
    """A difference as clients see it; `new` and `old` say which schema is which."""
    sentence = _OWN.get(name) or next(text for ending, text in _SENTENCES.items() if name.endswith(ending))
    description = sentence.format(path=path, new=new, old=old)
    return f'{{errorType:"{name}", description:"{description}"}}'
