from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st
from mindful.core.vector import to_text


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1))
def test_every_float4_survives_its_text(vector: list[float]) -> None:
    text = to_text(vector)
    assert (text[0], text[-1]) == ("[", "]")
    read = [float(part) for part in text[1:-1].split(",")]
    assert struct.pack(f"{len(vector)}f", *read) == struct.pack(f"{len(vector)}f", *vector)
