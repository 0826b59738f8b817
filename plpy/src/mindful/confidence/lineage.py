"""The generator and the ways that led to an answer. Each combination has its own labels and calibrators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Lineage(NamedTuple):
    """Columns of the tables `decision` and `calibrator`."""

    model: str
    """The generator that was asked first."""
    ways: tuple[str, ...] = ()
    """Other ways that led to the answer, in order: retrieve, retry, escalate."""
    second_model: str | None = None
    """The generator that answered after an escalation."""

    def by(self, way: str) -> Lineage:
        """Add a way."""
        return self._replace(ways=(*self.ways, way))

    def escalated(self, second_model: str) -> Lineage:
        """Add an escalation to a second model."""
        return self._replace(ways=(*self.ways, "escalate"), second_model=second_model)

    @classmethod
    def of(cls, model: str, row: Mapping[str, Any]) -> Lineage:
        """Read a row of `_mindful.lineage_list`."""
        return cls(model, tuple(row["ways"]), row["second_model"])

    @property
    def values(self) -> tuple[str, list[str], str | None]:
        """Arguments of SQL functions, of the types `TYPES`."""
        return self.model, list(self.ways), self.second_model


TYPES = ("text", "text[]", "text")
