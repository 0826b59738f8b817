from __future__ import annotations

from support.twin import TARGET, twin


def test_both_clients_come_from_one_source() -> None:
    assert TARGET.read_text() == twin(), "client.py differs from aio.py: change aio.py, then run make client"
