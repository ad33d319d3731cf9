"""The only way to the file system, and its simulated twins."""

from ottla.storage.disk.disk import Disk, Handle
from ottla.storage.disk.real_disk import RealDisk

__all__ = ["Disk", "Handle", "RealDisk"]
