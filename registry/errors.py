"""The error responses of the registry: Confluent's error codes, with sentences."""

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


def forwarding_failed(why: str) -> RegistryError:
    return RegistryError(50003, f"Error while forwarding the request to the leader: {why}")


def leader_unknown(why: str) -> RegistryError:
    return RegistryError(50004, f"The registry that writes is not known: {why}")


def subject_not_found(subject: str) -> RegistryError:
    return RegistryError(40401, f"Subject '{subject}' not found.")


def version_not_found(version: object) -> RegistryError:
    return RegistryError(40402, f"Version {version} not found.")


def schema_not_found(which: object = None) -> RegistryError:
    return RegistryError(40403, "Schema not found" if which is None else f"Schema {which} not found")


def subject_soft_deleted(subject: str) -> RegistryError:
    return RegistryError(40404, f"Subject '{subject}' is deleted already: permanent=true deletes it for good")


def subject_not_soft_deleted(subject: str) -> RegistryError:
    return RegistryError(40405, f"Subject '{subject}' can be deleted for good only after it was deleted softly")


def version_soft_deleted(subject: str, version: int) -> RegistryError:
    what = f"Version {version} of subject '{subject}' is deleted already: permanent=true deletes it for good"
    return RegistryError(40406, what)


def version_not_soft_deleted(subject: str, version: int) -> RegistryError:
    what = f"Version {version} of subject '{subject}' can be deleted for good only after it was deleted softly"
    return RegistryError(40407, what)


def compatibility_not_configured(subject: str) -> RegistryError:
    return RegistryError(40408, f"Subject '{subject}' has no compatibility level of its own")


def mode_not_configured(subject: str) -> RegistryError:
    return RegistryError(40409, f"Subject '{subject}' has no mode of its own")


def incompatible(messages: object) -> RegistryError:
    return RegistryError(409, f"The schema is incompatible with an earlier one of subject {messages}")


def invalid_schema(why: str) -> RegistryError:
    return RegistryError(42201, why)


def invalid_version(version: object) -> RegistryError:
    what = f"'{version}' is not a version: it is a number from 1 to 2147483647, or latest"
    return RegistryError(42202, what)


def invalid_compatibility_level() -> RegistryError:
    what = (
        "There is no such compatibility level: it is NONE, BACKWARD, FORWARD, FULL, BACKWARD_TRANSITIVE, "
        "FORWARD_TRANSITIVE or FULL_TRANSITIVE"
    )
    return RegistryError(42203, what)


def invalid_mode() -> RegistryError:
    return RegistryError(
        42204, "There is no such mode: it is READWRITE, READONLY, READONLY_OVERRIDE, IMPORT or FORWARD"
    )


def not_permitted(why: str) -> RegistryError:
    return RegistryError(42205, why)


def reference_exists(key: str) -> RegistryError:
    return RegistryError(42206, f"Other schemas refer to {key}")


def invalid_subject(subject: str) -> RegistryError:
    return RegistryError(42208, f"'{subject}' cannot be the name of a subject")


def too_large(why: str) -> RegistryError:
    return RegistryError(42209, why)


def unprocessable(why: str) -> RegistryError:
    return RegistryError(422, why)
