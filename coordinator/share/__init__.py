"""The share coordinator: how far each share group is with each partition, kept in `__share_group_state` (KIP-932)."""
