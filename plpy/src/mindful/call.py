"""A call of a generator: its arguments checked, its answer made, what it cost recorded."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mindful import runtime
from mindful.errors import ContextLengthError, InvalidParameterError, NullValueError
from mindful.ports import Completion, Database, Generator, Message, ModelSpec, Sampling
from mindful.slot import Turn

if TYPE_CHECKING:
    from mindful.schema import Schema

LONGEST_TEXT = 1 << 18
"""Bytes, as for a memory."""
_MOST_STOPS, _LONGEST_STOP = 64, 256
"""Every token is compared with all of them."""
BLANK = " \t\n\r"
"""What a text of nothing else is empty with, here as in SQL."""

SYSTEM_PROMPT = "You are a helpful assistant. Answer briefly."


class Call:
    """One call of a generator, from its prompt to its row in `generation`."""

    def __init__(
        self,
        spec: ModelSpec,
        generator: Generator,
        tokens: Sequence[int],
        sampling: Sampling,
        schema: Schema | None = None,
    ) -> None:
        self.spec = spec
        self._generator = generator
        self._tokens = tokens
        self._sampling = sampling
        self._schema = schema
        self._completion = Completion()
        self.generation_id: int | None = None
        """The call's row in `generation`, once it is recorded."""

    def answer(self, db: Database, memory_ids: Sequence[int] = ()) -> str:
        """Generate the whole answer, and record the call."""
        with Turn(db) as turn:
            text = "".join(self._generator.stream(self._tokens, self._sampling, self._completion, turn))
        self._record(db, turn, memory_ids)
        return self.checked(text)

    def stream(self, db: Database, memory_ids: Sequence[int] = ()) -> Iterator[str]:
        """Yield the answer as it is made, and record the call at its end."""
        turn, made = Turn(db), []
        pieces = self._generator.stream(self._tokens, self._sampling, self._completion, turn)
        while True:
            with turn:  # nobody waits for a slot while a cursor rests
                piece = next(pieces, None)
            if piece is None:
                break
            made.append(piece)
            yield piece
        self._record(db, turn, memory_ids)
        self.checked("".join(made))

    def checked(self, text: str) -> str:
        """Return the answer, or raise where it is not what its schema asks for."""
        if self._schema is None:
            return text
        if self._completion.finish_reason == "length":
            raise ContextLengthError(
                f"the answer is not complete after {len(self._completion.logprobs)} tokens",
                "Raise max_tokens, or bound texts and arrays in json_schema by maxLength and maxItems.",
            )
        return self._schema.checked(text)

    def outcome(self) -> dict[str, Any]:
        """Tell what a finished call cost and how sure the model was, as columns of `generation_detail`."""
        done = self._completion
        return {
            "prompt_tokens": done.prompt_tokens,
            "cached_tokens": done.cached_tokens,
            "completion_tokens": len(done.logprobs),
            "finish_reason": done.finish_reason,
            "confidence": confidence(done),
            "signals": json.dumps(signals(done)),
            "first_token_ms": done.first_token_ms,
            "total_ms": done.total_ms,
        }

    def _record(self, db: Database, turn: Turn, memory_ids: Sequence[int]) -> None:
        """Add the call to `generation`, where that is wanted and the transaction may write."""
        if not _recorded(db):
            return
        columns = self._columns(turn, memory_ids)
        places = ", ".join(f"${at}" for at in range(1, len(columns) + 1))
        self.generation_id = db.one(
            f"insert into mindful.generation ({', '.join(columns)}) values ({places}) returning id",
            [type_name for type_name, _ in columns.values()],
            [value for _, value in columns.values()],
        )["id"]

    def _columns(self, turn: Turn, memory_ids: Sequence[int] = ()) -> dict[str, tuple[str, Any]]:
        columns: dict[str, tuple[str, Any]] = {
            "model": ("text", self.spec.name),
            "model_sha256": ("text", self.spec.sha256),
            "temperature": ("real", self._sampling.temperature),
            "seed": ("integer", self._sampling.seed),
            "max_tokens": ("integer", self._sampling.max_tokens),
            "prompt_sha256": ("text", hashlib.sha256(repr(self._tokens).encode()).hexdigest()),
            "memory_ids": ("bigint[]", list(memory_ids)),
            "token_logprobs": ("real[]", self._completion.logprobs),
            "slot_wait_ms": ("real", turn.waited_ms),
        }
        types = {"confidence": "real", "signals": "jsonb", "finish_reason": "text"}
        for name, value in self.outcome().items():
            columns[name] = (types.get(name, "real" if name.endswith("_ms") else "integer"), value)
        return columns

    @property
    def signals(self) -> dict[str, float]:
        """The signals of a finished call's tokens."""
        return signals(self._completion)

    @property
    def signal_ms(self) -> float:
        """What reading them took."""
        return self._completion.signal_ms

    @staticmethod
    def answer_many(
        db: Database, calls: Sequence[Call], memory_ids: Sequence[Sequence[int]] = ()
    ) -> list[str]:
        """Generate the answers of calls of one generator side by side, and record them in one statement."""
        if not calls:
            return []
        with Turn(db, wide=len(calls) > 1) as turn:
            texts = calls[0]._generator.stream_many(
                [call._tokens for call in calls],
                [call._sampling for call in calls],
                [call._completion for call in calls],
                turn,
            )
        if _recorded(db):
            rows = [
                {name: value for name, (_, value) in call._columns(turn, shown).items()}
                for call, shown in zip(calls, memory_ids or [()] * len(calls), strict=True)
            ]
            for row in rows:
                row["signals"] = json.loads(row["signals"])
            columns = ", ".join(rows[0])
            stored = db.rows(
                f"""insert into mindful.generation ({columns})
                    select {columns} from pg_catalog.jsonb_populate_recordset(null::mindful.generation, $1)
                    returning id""",
                ("jsonb",),
                (json.dumps(rows),),
            )
            for call, record in zip(calls, stored, strict=True):
                call.generation_id = record["id"]
        return texts


def confidence(completion: Completion) -> float:
    """Geometric mean of the tokens' probabilities, exp(mean log p): in (0, 1], uncalibrated."""
    if not completion.logprobs:
        return 0.0
    return math.exp(math.fsum(completion.logprobs) / len(completion.logprobs))


def signals(completion: Completion) -> dict[str, float]:
    """Sum up the tokens' signals: log-probabilities and entropies in nats, margins as probabilities."""
    if not completion.logprobs:
        return {"tokens": 0}
    count, total = len(completion.logprobs), math.fsum(completion.logprobs)
    values = {
        "logprob_sum": total,
        "logprob_mean": total / count,
        "logprob_min": min(completion.logprobs),
        "logprob_first": completion.logprobs[0],
        "entropy_mean": math.fsum(completion.entropies) / count,
        "entropy_max": max(completion.entropies),
        "margin_min": min(completion.margins),
        "tokens": count,
    }
    return {name: round(value, 6) for name, value in values.items()}


def sampling_of(
    max_tokens: int | None, temperature: float | None, seed: int | None, stop: Sequence[str] | None = ()
) -> Sampling:
    """Check the arguments that say how to sample."""
    if max_tokens is None or temperature is None:
        raise NullValueError(
            "max_tokens and temperature must not be null", "Leave them out for the defaults."
        )
    if max_tokens < 1:
        raise InvalidParameterError(f"max_tokens is {max_tokens}", "It must be at least 1.")
    if not 0 <= temperature <= 10:
        raise InvalidParameterError(f"temperature is {temperature}", "It must be between 0 and 10.")
    if seed is not None and seed < 0:
        raise InvalidParameterError(f"seed is {seed}", "It must not be negative.")
    if not all(isinstance(text, str) for text in filter(None, stop or ())):
        raise InvalidParameterError(
            "stop has more than one dimension", "Give a one-dimensional array of texts."
        )
    stops = tuple(filter(None, stop or ()))
    if len(stops) > _MOST_STOPS or any(len(text) > _LONGEST_STOP for text in stops):
        raise ContextLengthError(
            f"stop has more than {_MOST_STOPS} texts, or one of more than {_LONGEST_STOP} characters",
            "Give fewer and shorter ones.",
        )
    return Sampling(max_tokens, temperature, seed, stops)


def call_of(
    db: Database,
    prompt: str,
    model: str | None,
    max_tokens: int | None,
    temperature: float | None,
    seed: int | None,
    system_prompt: str | None,
    stop: Sequence[str] | None,
    truncate: bool | None,
    json_schema: str | None,
    grammar: str | None,
) -> Call:
    """Check the arguments of a generating function, and make the call that they describe."""
    sampling = sampling_of(max_tokens, temperature, seed, stop)
    sampling, schema = _held(db, sampling, json_schema, grammar)
    if not prompt.strip(BLANK):
        raise InvalidParameterError("prompt is empty", "Give a text with at least one visible character.")
    check_length("prompt", prompt)
    check_length("system_prompt", system_prompt or "")
    spec, generator = runtime.generator(db, model)
    system = spec.options.get("system_prompt", SYSTEM_PROMPT) if system_prompt is None else system_prompt
    tokens = _encode(generator, system, prompt)
    room = generator.context_length - min(sampling.max_tokens, generator.context_length // 2)
    if truncate and len(tokens) > room:
        kept = generator.count(prompt) - (len(tokens) - room)
        tokens = _encode(generator, system, generator.truncate(prompt, max(kept, 1)))
    _check_fits(tokens, generator)
    return Call(spec, generator, tokens, sampling, schema)


def _held(
    db: Database, sampling: Sampling, json_schema: str | None, grammar: str | None
) -> tuple[Sampling, Schema | None]:
    """Hold a sampling to a schema or a grammar, where one is given."""
    if json_schema is None and grammar is None:
        return sampling, None
    if json_schema is not None and (grammar is not None or sampling.stop):
        raise InvalidParameterError(
            f"json_schema and {'stop' if grammar is None else 'grammar'} are given", "Give one of them."
        )
    # Imported here, as most calls do without.
    if json_schema is None:
        from mindful.gbnf import checked

        return replace(sampling, grammar=checked(str(grammar))), None
    from mindful.schema import schema_of

    schema = schema_of(json_schema, db.check)
    return replace(sampling, grammar=schema.grammar), schema


def _encode(generator: Generator, system: str, prompt: str) -> list[int]:
    messages = [Message("system", system)] if system else []
    return generator.encode([*messages, Message("user", prompt)])


def tokens_of(generator: Generator, messages: Sequence[Message]) -> list[int]:
    """Encode a prompt, or raise if it leaves no room for an answer."""
    tokens = generator.encode(messages)
    _check_fits(tokens, generator)
    return tokens


def _check_fits(tokens: Sequence[int], generator: Generator) -> None:
    """Raise unless the prompt leaves room for at least one token of answer."""
    if len(tokens) >= generator.context_length:
        raise ContextLengthError(
            f"the prompt has {len(tokens)} tokens, the model's context holds {generator.context_length}",
            "Shorten it, or register the model with a larger option context_length; "
            "llm_generate can cut it with truncate => true.",
        )


def check_length(name: str, text: str) -> None:
    """Raise if a text is longer than one that can be remembered."""
    size = len(text.encode("utf-8", errors="replace"))
    if size > LONGEST_TEXT:
        raise ContextLengthError(f"{name} has {size} bytes, more than {LONGEST_TEXT}", "Split it.")


def _recorded(db: Database) -> bool:
    """Tell whether a record in `generation` is wanted, and the transaction may write."""
    wanted = db.one(
        """select pg_catalog.current_setting('transaction_read_only') = 'off'
               and mindful.setting_get('generation_log') = 'true' as log"""
    )
    return bool(wanted["log"])
