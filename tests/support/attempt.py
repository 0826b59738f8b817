"""What an attack came to."""

from __future__ import annotations

from dataclasses import dataclass, field

GROUPS = {
    "key": "a key of the service",
    "page": "a page of another site",
    "stranger": "any login role",
    "reader": "mindful_reader",
    "bob": "mindful_user",
    "application": "mindful_application",
    "admin": "mindful_admin",
    "ana": "mindful_user",
}
"""The roles that attack, first those that do where a test connects as several."""
CANCELED = "57014"


@dataclass
class Attempt:
    """What was tried by one test, as whom, and what the server answered."""

    attack: str
    roles: set[str] = field(default_factory=set)
    errors: dict[str, set[str]] = field(default_factory=dict)
    canceled_ms: list[float] = field(default_factory=list)
    failed: str = ""

    def answered(self, role: str, sqlstate: str) -> None:
        """Note an error of a role's statement, or of its attempt to connect."""
        self.roles.add(role)
        self.errors.setdefault(role, set()).add(sqlstate)

    def attacker(self) -> str:
        """The first of the roles that the test connected as."""
        return next((name for name in GROUPS if name in self.roles), "none")

    def outcome(self) -> str:
        """What came of it, by the errors of the attacker's statements."""
        if self.failed:
            return f"**{self.failed}**"
        parts = []
        if refused := sorted(self.errors.get(self.attacker(), set()) - {CANCELED}):
            parts.append(f"refused ({', '.join(refused)})")
        if self.canceled_ms:
            parts.append(f"ended after {max(self.canceled_ms):.0f} ms")
        return ", ".join(parts) or "nothing gained"
