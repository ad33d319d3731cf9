"""The schema registry as the pipeline asks it: what goes wrong is the pipeline's own error."""

from __future__ import annotations

from ottla.client import schema_registry
from ottla.pipeline.errors import PipelineError

__all__ = ["Registry", "RegistryError"]


class RegistryError(PipelineError):
    """The schema registry did not answer, or lacks a subject."""


class Registry(schema_registry.Registry):
    """Looks schemas up by id and by subject, and remembers the ids: they never change."""

    FAILURE = RegistryError
