"""Files as what they say: documents, the operations of an API, conversations. Nothing here talks to a server."""


class UnreadableError(Exception):
    """A file, or a part of one, that is not what it should be; the message says why."""
