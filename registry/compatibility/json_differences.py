"""What may differ between two JSON Schemas: Confluent's names of the differences, and a sentence for each that breaks
something.
"""

from __future__ import annotations

from typing import Final

#: The differences that a reader does not mind are not in here.
_SENTENCES: Final = {
    "_ADDED": "The keyword at path '{path}' in the {new} schema is not present in the {old} schema",
    "_INCREASED": "The value at path '{path}' in the {new} schema is more than its value in the {old} schema",
    "_DECREASED": "The value at path '{path}' in the {new} schema is less than its value in the {old} schema",
    "_CHANGED": "The value at path '{path}' is different between the {new} and {old} schema",
    "_NARROWED": "An array or combined type at path '{path}' has fewer elements in the {new} schema than the {old} "
    "schema",
    "_EXTENDED": "An array or combined type at path '{path}' has more elements in the {new} schema than the {old} "
    "schema",
    "_REMOVED": "The keyword at path '{path}' in the {new} schema is not present in the {old} schema",
}
_TYPE: Final = "A type at path '{path}' is different between the {new} schema and the {old} schema"
_OPEN: Final = (
    "The {new} schema has an open content model and has a property or item at path '{path}' which is missing in the "
    "{old} schema"
)
_CLOSED: Final = (
    "The {new} schema has a closed content model and is missing a property or item present at path '{path}' in the "
    "{old} schema"
)
_NOT_COVERED: Final = "and is not covered by its partially open content model"

_OWN: Final = {
    "TYPE_CHANGED": _TYPE,
    "TYPE_NARROWED": _TYPE,
    "COMBINED_TYPE_CHANGED": _TYPE,
    "COMBINED_TYPE_SUBSCHEMAS_CHANGED": _TYPE,
    "ENUM_ARRAY_CHANGED": _TYPE,
    "MULTIPLE_OF_EXPANDED": "The value at path '{path}' in the {new} schema is more than its value in the {old} schema",
    "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL": "The {new} schema has an unopen content model and has a "
    "required property at path '{path}' which is missing in the {old} schema",
    "PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL": _OPEN,
    "ITEM_ADDED_TO_OPEN_CONTENT_MODEL": _OPEN,
    "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL": _CLOSED,
    "ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL": _CLOSED,
    "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": "A property or item is missing in the {new} schema "
    f"but present at path '{{path}}' in the {{old}} schema {_NOT_COVERED}",
    "ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": "A property or item is missing in the {new} schema but "
    f"present at path '{{path}}' in the {{old}} schema {_NOT_COVERED}",
    "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": "The {new} schema has a property or item at path "
    f"'{{path}}' which is missing in the {{old}} schema {_NOT_COVERED}",
    "ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": "The {new} schema has a property or item at path "
    f"'{{path}}' which is missing in the {{old}} schema {_NOT_COVERED}",
}


def message(name: str, path: str, new: str, old: str) -> str:
    """A difference as clients see it; `new` and `old` say which schema is which."""
    sentence = _OWN.get(name) or next(text for ending, text in _SENTENCES.items() if name.endswith(ending))
    description = sentence.format(path=path, new=new, old=old)
    return f'{{errorType:"{name}", description:"{description}"}}'
