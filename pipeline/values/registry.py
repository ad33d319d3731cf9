"""Where schemas are looked up: a registry with Confluent's HTTP interface, or a folder; and single files.

Their failures are the pipeline's.
"""

from __future__ import annotations

from pathlib import Path

from ottla.client import schema_registry
from ottla.client.schema_registry import RegistryLogin, SchemaText
from ottla.pipeline.errors import PipelineError
from ottla.pipeline.values.schemas import Schemas
from ottla.schemas import files

__all__ = ["FolderSchemas", "Registry", "RegistryError", "open_schemas", "schema_of_file"]


class RegistryError(PipelineError):
    """The schema registry did not answer, or lacks a subject."""


class Registry(schema_registry.Registry):
    """Implements Schemas."""

    FAILURE = RegistryError


class FolderSchemas(files.FolderSchemas):
    """Implements Schemas."""

    FAILURE = RegistryError


def open_schemas(address: str, login: RegistryLogin) -> Schemas:
    """The registry of an address, or the folder of a path. RegistryError if it is neither."""
    return Registry(address, login) if "://" in address else FolderSchemas(address)


def schema_of_file(path: Path, kind: str) -> SchemaText:
    """A schema with those beside it that it refers to. RegistryError if it cannot be read."""
    return files.schema_of_file(path, kind, RegistryError)
