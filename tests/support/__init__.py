"""What the tests share: databases made for one test, what queries tell, and the errors that SQL calls are to raise."""

from support.cluster import Cluster, Connect
from support.errors import fails
from support.models import EMBEDDER, GENERATOR, SCRIPTED_EMBEDDER, SCRIPTED_GENERATOR
from support.query import one

__all__ = [
    "EMBEDDER",
    "GENERATOR",
    "SCRIPTED_EMBEDDER",
    "SCRIPTED_GENERATOR",
    "Cluster",
    "Connect",
    "fails",
    "one",
]
