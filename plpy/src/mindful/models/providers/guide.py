"""Grammars that restrict answers, by llguidance. Each step takes bounded time for every grammar."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import numpy as np

from mindful.core.apart import Worker
from mindful.core.errors import ContextLengthError, DataError, InvalidParameterError
from mindful.core.extra import extra
from mindful.core.ports import Interrupts
from mindful.models.gbnf import lark

T = TypeVar("T")


class Vocabulary(Protocol):
    """A model's tokens."""

    vocabulary_size: int

    def piece(self, token: int) -> bytes:
        """Return a token's bytes, which are empty for control tokens."""

    def ends(self, token: int) -> bool:
        """Return whether a token ends the model's answer."""

    def tokenize_apart(self, text: str) -> list[int]:
        """Turn text into tokens."""


_KEPT = 4
"""Number of cached grammars. A query often uses one grammar for many rows."""
_LIMITS: dict[str, Any] = {
    "max_items_in_row": 1000,
    "step_max_items": 10_000,
    "step_lexer_fuel": 100_000,
    "initial_lexer_fuel": 500_000,
    "max_lexer_states": 10_000,
    "max_grammar_size": 100_000,
    "verbose_errors": False,
}
"""With these limits a step takes at most 150 ms on a busy processor."""
_LOOK_S = 0.02
_STACK = 64 << 20
"""Bytes. llguidance reads rules recursively; a chain of rules in 64 KiB of grammar needs more than 8 MiB."""


class Guides:
    """Makes guides for one model's vocabulary. The first guide prepares the vocabulary: 0.2 s and 10 MB."""

    def __init__(self, model: Vocabulary) -> None:
        self._model = model
        self._tokens: _Tokens | None = None
        self._tokenizer: Any = None
        self._threads: list[threading.Thread] = []
        self._matchers: dict[str, Any] = {}

    def guide(self, grammar: str, interrupts: Interrupts) -> Guide:
        """Make a guide for one answer."""
        if grammar not in self._matchers:
            if len(self._matchers) == _KEPT:
                self._matchers.clear()
            self._matchers[grammar] = self._started(grammar, interrupts)
        return Guide(self._matchers[grammar].deep_copy(), self._model.vocabulary_size)

    def _started(self, grammar: str, interrupts: Interrupts) -> Any:
        self._tokens = self._tokens or _Tokens(self._model, interrupts)
        matcher = self._apart(functools.partial(self._matcher, grammar), interrupts)
        if matcher.is_error():
            reason = _reason(matcher)
            if _is_limit(reason):
                raise ContextLengthError(f"the grammar is too large: {reason}", _SIMPLIFY)
            if reason.startswith("NoExtension"):
                raise InvalidParameterError(
                    "no text fits the grammar",
                    "Give each recursive rule an alternative that ends the recursion.",
                )
            raise InvalidParameterError(
                f"the grammar cannot be read: {reason}", "Pass GBNF with a rule root."
            )
        return matcher

    def _matcher(self, grammar: str) -> Any:
        with extra("server"):
            import llguidance

        if self._tokenizer is None:
            self._tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(self._tokens), slices=[])
        matcher = llguidance.LLMatcher(
            self._tokenizer,
            llguidance.LLMatcher.grammar_from_lark(lark(grammar)),
            log_level=0,
            limits=llguidance.LLParserLimits(**_LIMITS),
        )
        if not matcher.is_error():
            matcher.compute_bitmask()
        return matcher

    def close(self) -> None:
        """Wait for the threads of cancelled calls, which still read the vocabulary."""
        for thread in self._threads:
            thread.join()

    def _apart(self, work: Callable[[], T], interrupts: Interrupts) -> T:
        """Run uninterruptible work in a thread with a large stack, and check for interrupts meanwhile."""
        thread = Worker(work)
        before = threading.stack_size(_STACK)
        try:
            thread.start()
        finally:
            threading.stack_size(before)
        self._threads = [*filter(threading.Thread.is_alive, self._threads), thread]
        thread.join(_LOOK_S)
        while thread.is_alive():
            interrupts.check()
            thread.join(_LOOK_S)
        return thread.result()


_SIMPLIFY = "Simplify the grammar or json_schema. Let alternatives begin with different characters."


class Guide:
    """The position of an answer in its grammar."""

    def __init__(self, matcher: Any, vocabulary_size: int) -> None:
        self._matcher = matcher
        self._size = vocabulary_size

    def accept(self, token: int) -> bool:
        """Advance by a token and return True, or return False if the grammar does not allow it."""
        taken: bool = self._matcher.try_consume_tokens([token]) == 1
        self._check()
        return taken

    def allowed(self) -> Any:
        """Return a mask of the tokens that the grammar allows next."""
        bits = self._matcher.compute_bitmask()
        self._check()
        found = np.unpackbits(np.frombuffer(bits, dtype=np.uint8), bitorder="little")
        return found[: self._size].astype(bool)

    def _check(self) -> None:
        if not self._matcher.is_error():
            return
        if _is_limit(_reason(self._matcher)):
            raise ContextLengthError("the grammar is too ambiguous for the text generated so far", _SIMPLIFY)
        raise DataError("no token of the model fits the grammar here", _SIMPLIFY)


def _reason(matcher: Any) -> str:
    return str(matcher.get_error()).partition("\n")[0]


def _is_limit(reason: str) -> bool:
    return "too " in reason.lower() or "; max is " in reason


class _Tokens:
    """A model's tokens in the form that llguidance needs."""

    bos_token_id = None

    def __init__(self, model: Vocabulary, interrupts: Interrupts) -> None:
        self._model = model
        self.tokens: list[bytes] = []
        self.special_token_ids: list[int] = []
        for token in range(model.vocabulary_size):
            if token % 4096 == 0:
                interrupts.check()
            # A token without bytes is a control token, which llguidance marks by 0xff.
            self.tokens.append(model.piece(token) or b"\xff<%d>" % token)
            if model.ends(token):
                self.special_token_ids.append(token)
        self.eos_token_id = self.special_token_ids[0]

    def __call__(self, text: bytes) -> list[int]:
        return self._model.tokenize_apart(text.decode(errors="replace"))
