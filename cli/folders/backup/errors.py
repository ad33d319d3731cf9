"""What can go wrong with a backup. The texts are for people."""


class BackupError(Exception):
    """The backup or the restore was given up; nothing that belongs to the broker was changed."""
