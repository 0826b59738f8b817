"""What was computed of a conversation, kept in the table kv_state: any connection goes on where another stood.

A cache: whatever is missing, refused or in doubt is evaluated again.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Sequence
from dataclasses import dataclass

from mindful.ports import Database, Generator, ModelSpec

LEAST = 64
"""Tokens below which a state is neither written nor read: so few are soon evaluated."""
MOST = 512
"""Tokens in one part, so that no value comes near a bytea's 1 GB (12 MB at 135M parameters, 64 MB at 7B)."""


@dataclass(frozen=True)
class Part:
    """Consecutive tokens of a prompt, from position `first` to before `last`."""

    first: int
    tokens: Sequence[int]

    @property
    def last(self) -> int:
        """Where the next part begins."""
        return self.first + len(self.tokens)


class ConversationState:
    """The kept state of one session's conversation with one generator."""

    def __init__(self, db: Database, spec: ModelSpec, generator: Generator, session_id: str) -> None:
        self._db = db
        self._generator = generator
        self._key = (session_id, spec.name)
        self._fingerprint = generator.state_format and fingerprint(spec, generator.state_format)
        self._refused: int | None = None

    def restore(self, tokens: Sequence[int]) -> None:
        """Have the generator hold as much of a prompt as was kept, where that is more than it holds already."""
        held = self._generator.held(tokens)
        if self._fingerprint is None or len(tokens) - held < LEAST:
            return
        parts = self._parts(tokens)
        if not parts or parts[-1].last - held < LEAST:
            return
        for part in parts:
            if part.last > held and not self._load(part):
                # It is deleted after the reply: no row may be locked while the model runs.
                self._refused = part.first
                return

    def keep(self, tokens: Sequence[int]) -> None:
        """Keep what the generator holds of the next prompt's beginning, as far as it is not kept yet."""
        held = self._generator.held(tokens)
        if self._fingerprint is None or held < LEAST:
            return
        parts = self._parts(tokens)
        kept = parts[-1].last if parts else 0
        if held - kept < LEAST:
            return
        limits = self._db.one(
            "select mindful._tenant() as tenant, enabled, tenant_bytes from mindful._kv_state_limits()"
        )
        if not limits["enabled"]:
            return
        for first in range(kept, held, MOST):
            part = Part(first, list(tokens[first : min(first + MOST, held)]))
            state = self._generator.save(part.first, part.last)
            # One conversation that exceeds the limit alone would be evicted as soon as it is written.
            too_large = len(state) * held > limits["tenant_bytes"] * len(part.tokens)
            if too_large or not self._write(part, limits["tenant"], state):
                return

    def _parts(self, tokens: Sequence[int]) -> list[Part]:
        """List the kept parts that a prompt begins with, up to the first that was refused."""
        rows = self._db.rows(
            "select first, tokens from mindful._kv_state_parts($1, $2, $3)",
            ("uuid", "text", "text"),
            (*self._key, self._fingerprint),
        )
        parts: list[Part] = []
        for row in rows:
            part = Part(row["first"], row["tokens"])
            follows = part.first == (parts[-1].last if parts else 0) and part.first != self._refused
            if not follows or list(tokens[part.first : part.last]) != list(part.tokens):
                break
            parts.append(part)
        return parts

    def _load(self, part: Part) -> bool:
        rows = self._db.rows(
            "select tenant, state, mac from mindful._kv_state_read($1, $2, $3)",
            ("uuid", "text", "integer"),
            (*self._key, part.first),
        )
        for row in rows:
            seal = self._seal(part, row["tenant"], row["state"])
            if hmac.compare_digest(seal, row["mac"]):
                return self._generator.load(part.first, part.tokens, row["state"])
        return False

    def _write(self, part: Part, tenant: str, state: bytes) -> bool:
        written = self._db.one(
            "select mindful._kv_state_write($1, $2, $3, $4, $5, $6, $7) as written",
            ("uuid", "text", "integer", "text", "integer[]", "bytea", "bytea"),
            (*self._key, part.first, self._fingerprint, part.tokens, state, self._seal(part, tenant, state)),
        )
        return bool(written["written"])

    def _seal(self, part: Part, tenant: str, state: bytes) -> bytes:
        """HMAC-SHA256 (RFC 2104) of everything that makes a state the right one, and of the state."""
        identity = [tenant, *self._key, self._fingerprint, part.first, list(part.tokens), len(state)]
        mac = hmac.new(self._db.secret(), json.dumps(identity).encode(), "sha256")
        mac.update(state)
        return mac.digest()


def fingerprint(spec: ModelSpec, state_format: str) -> str:
    """Hash what a state depends on beside the tokens."""
    return hashlib.sha256(json.dumps([spec.name, spec.sha256, state_format]).encode()).hexdigest()
