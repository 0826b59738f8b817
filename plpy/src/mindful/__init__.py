"""The server half of mindful: what the extension's PL/Python functions call."""

from mindful._version import VERSION as __version__

__all__ = ["__version__"]
