"""Whole lists of messages answered: nothing is remembered, and a resent beginning is not evaluated again."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from mindful.conversation.messages import conversation_of
from mindful.conversation.offer import Reader, offer_of
from mindful.conversation.state import ListState
from mindful.core.entry import sql_function
from mindful.core.errors import InvalidParameterError
from mindful.core.jsontext import loads
from mindful.core.ports import Database, Piece, Sampling
from mindful.generate.call import Call, check_fits, constrained, seed_of
from mindful.generate.sampling import Drawing, full_sampling_of, within
from mindful.models import runtime

_MOST_CHOICES = 32
Row = dict[str, Any]


class Arguments(NamedTuple):
    """How a list of messages is answered: the arguments of llm_complete after the list, in their order."""

    model: str | None
    max_tokens: int | None
    temperature: float | None
    top_p: float | None
    top_k: int | None
    min_p: float | None
    presence_penalty: float | None
    frequency_penalty: float | None
    repeat_penalty: float | None
    logit_bias: str | None
    stop: Sequence[str] | None
    seed: int | None
    n: int | None
    json_schema: str | None
    grammar: str | None
    tools: str | None
    tool_choice: str | None
    top_logprobs: int | None

    def sampling(self) -> Sampling:
        """Check the sampling arguments and return them."""
        return full_sampling_of(
            self.max_tokens,
            self.temperature,
            Drawing.among(self),
            self.logit_bias,
            self.stop,
            self.seed,
            self.top_logprobs,
        )


@sql_function
def llm_complete(db: Database, messages: str | None, *arguments: Any) -> Iterator[Row]:
    """Answer a list of messages, one row a choice."""
    if messages is not None:
        request = Request(db, messages, Arguments(*arguments))
        for number in range(request.choices):
            yield request.whole(number)


@sql_function
def llm_complete_stream(db: Database, messages: str | None, *arguments: Any) -> Iterator[Row]:
    """Answer a list of messages piece by piece."""
    if messages is not None:
        request = Request(db, messages, Arguments(*arguments))
        for number in range(request.choices):
            yield from request.pieces(number)


class Request:
    """A list of messages, and how it is to be answered."""

    def __init__(self, db: Database, messages: str, given: Arguments) -> None:
        self._db = db
        self.choices = int(within("n", given.n, 1, _MOST_CHOICES))
        sampling = given.sampling()
        talk = conversation_of(messages)
        self._offer = offer_of(given.tools, given.tool_choice, db.check)
        if self._offer.grammar is not None and (given.json_schema or given.grammar):
            raise InvalidParameterError("tools and json_schema or grammar are given", "Give one of them.")
        sampling, self._schema = constrained(
            db, sampling, given.json_schema, given.grammar or self._offer.grammar
        )
        self._spec, self._generator = runtime.generator(db, given.model)
        self._talk = self._offer.presented(talk)
        self._tokens = self._talk.tokens(self._generator)
        if not self._tokens:
            raise InvalidParameterError("the messages give no token", "Send a message with a text.")
        check_fits(self._tokens, self._generator)
        room = self._generator.context_length - len(self._tokens)
        self._sampling = sampling._replace(max_tokens=min(sampling.max_tokens, room))
        self._state = ListState(db, self._spec, self._generator, self._tokens)

    def whole(self, number: int) -> Row:
        """Make one answer, as a row of `completion`."""
        call = self._call(number)
        made = list(self._made(call))
        calls = [piece["tool_call"] for piece in made if piece["tool_call"]]
        outcome = call.outcome()
        return outcome | {
            "choice": number,
            "text": "".join(piece["text"] for piece in made),
            "tool_calls": json.dumps([_joined(calls)]) if calls else None,
            "finish_reason": _reason(outcome["finish_reason"], bool(calls)),
            "logprobs": json.dumps([_logprob(piece) for piece in made if piece["logprob"] is not None])
            if self._sampling.alternatives is not None
            else None,
            "model": self._spec.name,
        }

    def pieces(self, number: int) -> Iterator[Row]:
        """Make one answer, as rows of `completion_piece`."""
        call, is_call = self._call(number), False
        for piece in self._made(call):
            given = piece["tool_call"]
            is_call = is_call or given is not None
            yield piece | {"choice": number, "tool_call": given and json.dumps(given)}
        usage = call.outcome()
        reason = _reason(usage.pop("finish_reason"), is_call)
        usage |= {"signals": loads(usage["signals"]), "model": self._spec.name}
        yield _piece() | {"choice": number, "finish_reason": reason, "usage": json.dumps(usage)}

    def _call(self, number: int) -> Call:
        own = self._sampling._replace(seed=seed_of(self._sampling.seed, number))
        # The client says how the answer ends: by stop, max_tokens and penalties.
        return Call(self._spec, self._generator, self._tokens, own, ends_loops=False)

    def _made(self, call: Call) -> Iterator[Row]:
        """Yield an answer's pieces, then check it and keep its state."""
        if self._sampling.seed is None:
            self._state.restore(self._tokens)
        texts: list[str] = []
        yield from _pieces(call, call.stream(self._db), self._offer.reader(), texts)
        answer = "".join(texts)
        if self._schema is not None and call.outcome()["finish_reason"] == "stop":
            self._schema.checked(answer)
        if not self._generator.held(self._tokens):  # the model was unloaded while a cursor rested
            return
        with contextlib.suppress(InvalidParameterError):  # a template may refuse what comes next
            self._state.keep(self._talk.next_tokens(self._generator, answer))


def _pieces(call: Call, made: Iterator[str], reader: Reader, texts: list[str]) -> Iterator[Row]:
    """Yield rows as text is made, one a token where tokens are recorded, and collect the text."""
    seen = 0
    for text in made:
        texts.append(text)
        new, seen = call.pieces[seen:], len(call.pieces)
        for token in new[:-1]:
            yield _piece("", token)
        shown, given = reader.read(text)
        if shown or given or new:
            yield _piece(shown, new[-1] if new else None, given)
    shown, given = reader.rest(call.outcome()["finish_reason"] == "stop")
    if shown or given:
        yield _piece(shown, None, given)


def _piece(text: str = "", token: Piece | None = None, tool_call: Row | None = None) -> Row:
    row: Row = dict.fromkeys(("token", "bytes", "logprob", "alternatives", "finish_reason", "usage"))
    if token is not None:
        row |= {"token": _shown(token.data), "bytes": token.data, "logprob": token.logprob}
        row["alternatives"] = json.dumps(
            [
                {"token": _shown(data), "bytes": list(data), "logprob": logprob}
                for data, logprob in token.alternatives
            ]
        )
    return row | {"text": text, "tool_call": tool_call}


def _shown(data: bytes) -> str:
    """Write a token, which may be part of a character, as text that PostgreSQL holds."""
    return data.decode(errors="replace").replace("\0", "")


def _logprob(piece: Row) -> Row:
    alternatives = loads(piece["alternatives"])
    return {
        "token": piece["token"],
        "bytes": list(piece["bytes"]),
        "logprob": piece["logprob"],
        "top_logprobs": alternatives,
    }


def _joined(parts: list[Row]) -> Row:
    return parts[0] | {"arguments": "".join(part["arguments"] for part in parts)}


def _reason(finish_reason: str, is_call: bool) -> str:
    return "tool_calls" if is_call and finish_reason == "stop" else finish_reason
