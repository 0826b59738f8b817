"""What the tests share: databases made for one test, and the errors that SQL calls are to raise."""

from support.cluster import Cluster, Connect
from support.errors import fails
from support.models import EMBEDDER, GENERATOR, SCRIPTED_EMBEDDER, SCRIPTED_GENERATOR

__all__ = [
    "EMBEDDER",
    "GENERATOR",
    "SCRIPTED_EMBEDDER",
    "SCRIPTED_GENERATOR",
    "Cluster",
    "Connect",
    "fails",
]
