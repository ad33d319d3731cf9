"""What the registry answers instead of what was asked for: Confluent's error codes, with Confluent's messages."""

from __future__ import annotations


class RegistryError(Exception):
    """An answer with an error code. The code's first three digits are the HTTP status."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self.code if self.code < 1000 else int(str(self.code)[:3])


class UnavailableError(RegistryError):
    """The topic cannot be read or written now."""

    def __init__(self, message: str) -> None:
        super().__init__(50001, message)


def subject_not_found(subject: str) -> RegistryError:
    return RegistryError(40401, f"Subject '{subject}' not found.")


def version_not_found(version: object) -> RegistryError:
    return RegistryError(40402, f"Version {version} not found.")


def schema_not_found(which: object = None) -> RegistryError:
    return RegistryError(40403, "Schema not found" if which is None else f"Schema {which} not found")


def subject_soft_deleted(subject: str) -> RegistryError:
    return RegistryError(40404, f"Subject '{subject}' was soft deleted.Set permanent=true to delete permanently")


def subject_not_soft_deleted(subject: str) -> RegistryError:
    return RegistryError(40405, f"Subject '{subject}' was not deleted first before being permanently deleted")


def version_soft_deleted(subject: str, version: int) -> RegistryError:
    what = f"Subject '{subject}' Version {version} was soft deleted.Set permanent=true to delete permanently"
    return RegistryError(40406, what)


def version_not_soft_deleted(subject: str, version: int) -> RegistryError:
    what = f"Subject '{subject}' Version {version} was not deleted first before being permanently deleted"
    return RegistryError(40407, what)


def compatibility_not_configured(subject: str) -> RegistryError:
    return RegistryError(40408, f"Subject '{subject}' does not have subject-level compatibility configured")


def mode_not_configured(subject: str) -> RegistryError:
    return RegistryError(40409, f"Subject '{subject}' does not have subject-level mode configured")


def incompatible(messages: object) -> RegistryError:
    what = f"Schema being registered is incompatible with an earlier schema for subject {messages}"
    return RegistryError(409, what)


def invalid_schema(why: str) -> RegistryError:
    return RegistryError(42201, why)


def invalid_version(version: object) -> RegistryError:
    what = (
        f"The specified version '{version}' is not a valid version id. Allowed values are between [1, 2^31-1] and the "
        'string "latest"'
    )
    return RegistryError(42202, what)


def invalid_compatibility_level() -> RegistryError:
    what = (
        "Invalid compatibility level. Valid values are none, backward, forward, full, backward_transitive, "
        "forward_transitive, and full_transitive"
    )
    return RegistryError(42203, what)


def invalid_mode() -> RegistryError:
    return RegistryError(
        42204, "Invalid mode. Valid values are READWRITE, READONLY, READONLY_OVERRIDE, IMPORT, FORWARD"
    )


def not_permitted(why: str) -> RegistryError:
    return RegistryError(42205, why)


def reference_exists(key: str) -> RegistryError:
    return RegistryError(42206, f"One or more references exist to the schema {key}.")


def invalid_subject(subject: str) -> RegistryError:
    return RegistryError(42208, f"The specified subject '{subject}' is not a valid subject.")


def too_large(why: str) -> RegistryError:
    return RegistryError(42209, why)


def unprocessable(why: str) -> RegistryError:
    return RegistryError(422, why)
