"""Keys and values of a conversation in the table kv_state: any connection continues without evaluating it again.

It is a cache: a missing or invalid state is evaluated again.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import uuid
from collections.abc import Sequence
from typing import NamedTuple

from mindful.core.ports import Database, Generator, ModelSpec

LEAST = 64
"""Fewest tokens of a state: evaluating fewer is faster than reading them."""
MOST = 512
"""Most tokens of a part, which keeps values far below the 1 GB of a bytea (12 MB at 135M parameters, 64 MB at 7B)."""


class Part(NamedTuple):
    """Consecutive tokens of a prompt, from position `first` to before `last`."""

    first: int
    tokens: Sequence[int]

    @property
    def last(self) -> int:
        """Position of the next part."""
        return self.first + len(self.tokens)


class ConversationState:
    """The state of one session with one generator."""

    _least = LEAST

    def __init__(self, db: Database, spec: ModelSpec, generator: Generator, session_id: str) -> None:
        self._db = db
        self._generator = generator
        self._key = (session_id, spec.name)
        self._fingerprint = generator.state_format and fingerprint(spec, generator.state_format)
        self._refused: int | None = None

    def restore(self, tokens: Sequence[int]) -> None:
        """Load the state of a prompt into the generator, if the generator has less of it already."""
        loaded = self._generator.held(tokens)
        if self._fingerprint is None or len(tokens) - loaded < self._least:
            return
        parts = self._parts(tokens)
        if not parts or parts[-1].last - loaded < self._least:
            return
        for part in parts:
            if part.last > loaded and not self._load(part):
                # keep() replaces it after the reply: no row may be locked while the model runs.
                self._refused = part.first
                return

    def keep(self, tokens: Sequence[int]) -> None:
        """Write the state of the next prompt's first tokens, as far as the table does not have it."""
        loaded = self._generator.held(tokens)
        if self._fingerprint is None or loaded < self._least:
            return
        parts = self._parts(tokens)
        kept = parts[-1].last if parts else 0
        if loaded - kept < self._least:
            return
        limits = self._db.one(
            "select _mindful.tenant() as tenant, enabled, tenant_bytes from _mindful.kv_state_limits()"
        )
        if not limits["enabled"]:
            return
        for first in range(kept, loaded, MOST):
            part = Part(first, list(tokens[first : min(first + MOST, loaded)]))
            state = self._generator.save(part.first, part.last)
            # A conversation larger than the limit would be evicted as soon as it is written.
            too_large = len(state) * loaded > limits["tenant_bytes"] * len(part.tokens)
            if too_large or not self._write(part, limits["tenant"], state):
                return

    def _parts(self, tokens: Sequence[int]) -> list[Part]:
        """List the stored parts that match the beginning of a prompt, up to the first invalid one."""
        rows = self._db.rows(
            "select first, tokens from _mindful.kv_state_parts($1, $2, $3)",
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
            "select tenant, state, mac from _mindful.kv_state_read($1, $2, $3)",
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
            "select _mindful.kv_state_write($1, $2, $3, $4, $5, $6, $7, $8) as written",
            ("uuid", "uuid", "text", "integer", "text", "integer[]", "bytea", "bytea"),
            (
                *self._ids(),
                self._key[1],
                part.first,
                self._fingerprint,
                part.tokens,
                state,
                self._seal(part, tenant, state),
            ),
        )
        return bool(written["written"])

    def _ids(self) -> tuple[str | None, str | None]:
        return self._key[0], None

    def _seal(self, part: Part, tenant: str, state: bytes) -> bytes:
        """Compute the HMAC-SHA256 (RFC 2104) of a state and of all that identifies it."""
        identity = [tenant, *self._key, self._fingerprint, part.first, list(part.tokens), len(state)]
        mac = hmac.new(self._db.secret(), json.dumps(identity).encode(), "sha256")
        mac.update(state)
        return mac.digest()


class ListState(ConversationState):
    """The kept state of a conversation that its client resends as a whole: found by the tokens that it begins with."""

    _least = 16  # a client's turn is short, and goes to whichever connection is free

    def __init__(self, db: Database, spec: ModelSpec, generator: Generator, tokens: Sequence[int]) -> None:
        super().__init__(db, spec, generator, str(uuid.uuid4()))
        self._find(tokens)

    def keep(self, tokens: Sequence[int]) -> None:
        """Keep what is new. A conversation that takes another turn than a kept one is kept beside it."""
        may_write = "select pg_catalog.current_setting('transaction_read_only') = 'off' as may_write"
        if not self._db.one(may_write)["may_write"]:
            return
        if not self._find(tokens):
            self._key = (str(uuid.uuid4()), self._key[1])
        super().keep(tokens)

    def _find(self, tokens: Sequence[int]) -> bool:
        """Take the conversation of which the longest beginning is kept; tell whether nothing else is kept of it."""
        if self._fingerprint is None or len(tokens) < self._least:
            return False
        rows = self._db.rows(
            "select thread_id, is_whole from _mindful.kv_state_thread($1, $2, $3)",
            ("integer[]", "text", "text"),
            (list(tokens), self._key[1], self._fingerprint),
        )
        for row in rows:
            self._key = (row["thread_id"], self._key[1])
        return any(row["is_whole"] for row in rows)

    def _ids(self) -> tuple[str | None, str | None]:
        return None, self._key[0]


def fingerprint(spec: ModelSpec, state_format: str) -> str:
    """Hash the model and the format, on which a state depends beside the tokens."""
    return hashlib.sha256(json.dumps([spec.name, spec.sha256, state_format]).encode()).hexdigest()
