"""NumPy for generators. Embedders do without: it takes a third of the time of a connection's first embedding."""

from __future__ import annotations

import os

# NumPy's threads would wait without sleep. It reads this when it is loaded.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

__all__ = ["np"]
