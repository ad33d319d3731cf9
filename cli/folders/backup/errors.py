"""Errors of backups. The texts are for people."""


class BackupError(Exception):
    """The backup or the restore was given up; nothing that belongs to the broker was changed."""
