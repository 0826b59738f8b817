"""Readers of files: documents, API specifications, conversations. Nothing here connects to a server."""

LONGEST = 1 << 18
"""Largest memory or message, in bytes."""


class UnreadableError(Exception):
    """A file, or a part of one, cannot be read. The message says why."""
