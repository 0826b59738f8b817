"""A call of a generator: checks its arguments, generates the answer, records the cost."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from mindful.core.errors import ContextLengthError, DataError, InvalidParameterError
from mindful.core.jsontext import loads
from mindful.core.ports import Completion, Database, Generator, Message, ModelSpec, Piece, Sampling
from mindful.core.slot import Turn
from mindful.core.text import TextStream
from mindful.generate.loop import LoopWatch
from mindful.generate.sampling import Drawing, sampling_of
from mindful.models import runtime
from mindful.models.standby import whole

if TYPE_CHECKING:
    from mindful.generate.schema import Schema

LONGEST_TEXT = 1 << 18
"""Bytes, the same limit as for a memory."""
BLANK = " \t\n\r"
"""Characters that are ignored when a text is tested for emptiness. SQL functions ignore the same."""
_LEAST_REAL = 1e-30
"""What is less is stored as 0: the type real ends at 1e-45."""

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
        *,
        ends_loops: bool = True,
        logged: bool | None = None,
    ) -> None:
        """Make a call. logged is the setting generation_log, where it was read and the transaction may write."""
        self.spec = spec
        self._generator = generator
        self._tokens = tokens
        self._sampling = sampling
        self._schema = schema
        self._ends_loops = ends_loops and sampling.grammar is None
        self._logged = logged
        self._completion = Completion()
        self.generation_id: int | None = None
        """Id of the call's row in `generation`, set when it is recorded."""

    def answer(self, db: Database, memory_ids: Sequence[int] = ()) -> str:
        """Generate the whole answer and record the call."""
        with Turn(db, served=self._generator.served) as turn:
            text = whole(self._generator, self._tokens, self._sampling, self._completion, turn, self._watched)
        self._record(db, turn, memory_ids)
        return self.checked(text)

    def stream(self, db: Database, memory_ids: Sequence[int] = ()) -> Iterator[str]:
        """Yield the answer piece by piece, and record the call at its end."""
        turn, made = Turn(db, served=self._generator.served), []
        pieces = self._watched(self._generator.stream(self._tokens, self._sampling, self._completion, turn))
        while True:
            with turn:  # releases the slot while the client reads
                piece = next(pieces, None)
            if piece is None:
                break
            made.append(piece)
            yield piece
        self._record(db, turn, memory_ids)
        self.checked("".join(made))

    def _watched(self, pieces: Iterator[str]) -> Iterator[str]:
        """Yield the pieces of an answer, and end it where it repeats itself.

        Tokens of repetitions do not count: a repetition is ever more probable, so they would raise the confidence.
        """
        done, watch = self._completion, LoopWatch()
        if not self._ends_loops:
            yield from pieces
            return
        for piece in pieces:
            if watch.push(piece, len(done.logprobs)):
                self._end(watch)
                break
            if shown := watch.show():
                yield shown
        if rest := watch.show(ended=True):
            yield rest

    def _end(self, watch: LoopWatch) -> None:
        done, tokens = self._completion, watch.cut()
        for values in (done.logprobs, done.entropies, done.margins, done.pieces):
            del values[tokens:]
        done.looped, done.finish_reason = True, "stop"

    def _ended(self, text: str) -> str:
        """Return an answer of a batch up to where it repeats itself, if the texts of its tokens are known."""
        watch, stream = LoopWatch(), TextStream(self._sampling.stop)
        for tokens, piece in enumerate(self._completion.pieces if self._ends_loops else (), start=1):
            if watch.push(stream.push(piece.data), tokens):
                self._end(watch)
                return watch.text
            watch.show()
        return text

    def skip(self) -> None:
        """Leave the model out: the call ends without a token and is not recorded."""
        self._completion.finish_reason = "stop"

    def checked(self, text: str) -> str:
        """Return the answer. Errors: 22000 (it does not fit the schema), 54000 (it is incomplete)."""
        if self._schema is None:
            return text
        if self._completion.finish_reason == "length":
            raise ContextLengthError(
                f"the answer is not complete after {len(self._completion.logprobs)} tokens",
                "Raise max_tokens, or limit texts and arrays in json_schema by maxLength and maxItems.",
            )
        return self._schema.checked(text)

    def is_accepted(self, text: str) -> bool:
        """Return whether `checked` returns the answer."""
        try:
            self.checked(text)
        except (ContextLengthError, DataError):
            return False
        return True

    @property
    def is_deterministic(self) -> bool:
        """Whether the same call gives the same answer again."""
        return self._sampling.temperature == 0 or self._sampling.seed is not None

    @property
    def identity(self) -> tuple[object, ...]:
        """Everything that the answer of a deterministic call depends on."""
        return (*spec_identity(self.spec), self._tokens, self._sampling)

    def outcome(self) -> dict[str, Any]:
        """Return the cost and confidence of a finished call, as columns of `generation_detail`."""
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
        """Insert the call into `generation`, if the setting and the transaction allow it."""
        if not (_recorded(db) if self._logged is None else self._logged):
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
            "temperature": ("real", _real(self._sampling.temperature)),
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
    def pieces(self) -> Sequence[Piece]:
        """The tokens generated so far, if `Sampling.alternatives` is set."""
        return self._completion.pieces

    @property
    def signals(self) -> dict[str, float]:
        """The signals of a finished call's tokens."""
        return signals(self._completion)

    @property
    def signal_ms(self) -> float:
        """Milliseconds that computing the signals took."""
        return self._completion.signal_ms

    @staticmethod
    def answer_many(
        db: Database, calls: Sequence[Call], memory_ids: Sequence[Sequence[int]] = ()
    ) -> list[str]:
        """Generate the answers of one generator's calls in shared batches, and record them in one statement."""
        if not calls:
            return []
        with Turn(db, wide=len(calls) > 1, served=calls[0]._generator.served) as turn:
            texts = calls[0]._generator.stream_many(
                [call._tokens for call in calls],
                [call._sampling for call in calls],
                [call._completion for call in calls],
                turn,
            )
        texts = [call._ended(text) for call, text in zip(calls, texts, strict=True)]
        if _recorded(db):
            rows = [
                {name: value for name, (_, value) in call._columns(turn, shown).items()}
                for call, shown in zip(calls, memory_ids or [()] * len(calls), strict=True)
            ]
            for row in rows:
                row["signals"] = loads(row["signals"])
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
    """Return the geometric mean of the tokens' probabilities, exp(mean log p), in (0, 1]. It is not calibrated."""
    if not completion.logprobs:
        return 0.0
    return math.exp(math.fsum(completion.logprobs) / len(completion.logprobs))


def signals(completion: Completion) -> dict[str, float]:
    """Aggregate the tokens' signals: log-probabilities and entropies in nats, margins as probabilities.

    `entropy_high` is the mean of the highest quarter of the entropies: tokens that only repeat the question or are
    polite say little (quantiles of tokens as in Gupta et al. 2024, arXiv 2404.10136).
    """
    if not completion.logprobs:
        return {"tokens": 0}
    count, total = len(completion.logprobs), math.fsum(completion.logprobs)
    highest = sorted(completion.entropies, reverse=True)[: max(count // 4, 1)]
    values = {
        "logprob_sum": total,
        "logprob_mean": total / count,
        "logprob_min": min(completion.logprobs),
        "logprob_first": completion.logprobs[0],
        "entropy_mean": math.fsum(completion.entropies) / count,
        "entropy_high": math.fsum(highest) / len(highest),
        "entropy_max": max(completion.entropies),
        "margin_min": min(completion.margins),
        "tokens": count,
    }
    if completion.looped:
        values["looped"] = 1
    return {name: round(value, 6) for name, value in values.items()}


def spec_identity(spec: ModelSpec) -> tuple[str, ...]:
    """Return everything of a model that its results depend on."""
    return (spec.provider, spec.source, spec.sha256, json.dumps(spec.options, sort_keys=True))


class Arguments(NamedTuple):
    """How a prompt is answered: the arguments of the generating SQL functions after the prompt, in their order."""

    model: str | None
    max_tokens: int | None
    temperature: float | None
    seed: int | None
    system_prompt: str | None
    stop: Sequence[str] | None
    truncate: bool | None
    json_schema: str | None
    grammar: str | None
    top_p: float | None
    top_k: int | None
    min_p: float | None
    presence_penalty: float | None
    frequency_penalty: float | None
    repeat_penalty: float | None

    def sampling(self) -> Sampling:
        """Check the sampling arguments and return them."""
        sampling = sampling_of(self.max_tokens, self.temperature, self.seed, self.stop)
        return Drawing.among(self).of(sampling)


def call_of(db: Database, prompt: str, given: Arguments) -> Call:
    """Check the arguments of a generating function and make its call."""
    sampling, schema = constrained(db, given.sampling(), given.json_schema, given.grammar)
    if not prompt.strip(BLANK):
        raise InvalidParameterError("prompt is empty", "Pass a text with at least one visible character.")
    check_length("prompt", prompt)
    check_length("system_prompt", given.system_prompt or "")
    spec, generator = runtime.generator(db, given.model)
    system = given.system_prompt
    if system is None:
        system = spec.options.get("system_prompt", SYSTEM_PROMPT)
    tokens = _encode(generator, system, prompt)
    room = generator.context_length - min(sampling.max_tokens, generator.context_length // 2)
    if given.truncate and len(tokens) > room:
        kept = generator.count(prompt) - (len(tokens) - room)
        tokens = _encode(generator, system, generator.truncate(prompt, max(kept, 1)))
    check_fits(tokens, generator)
    return Call(spec, generator, tokens, sampling, schema)


def seed_of(seed: int | None, number: int) -> int | None:
    """Return the seed of the n-th answer of a call, so that answers of one call differ. It stays an SQL integer."""
    return seed if seed is None or seed < 0 else (seed + number) % (1 << 31)


def constrained(
    db: Database, sampling: Sampling, json_schema: str | None, grammar: str | None
) -> tuple[Sampling, Schema | None]:
    """Restrict a sampling to a JSON schema or a grammar, if one is passed."""
    if json_schema is None and grammar is None:
        return sampling, None
    if json_schema is not None and (grammar is not None or sampling.stop):
        raise InvalidParameterError(
            f"json_schema and {'stop' if grammar is None else 'grammar'} are both passed", "Pass one of them."
        )
    # Imported here, because most calls do not need it.
    if json_schema is None:
        from mindful.models.gbnf import checked_grammar

        return sampling._replace(grammar=checked_grammar(str(grammar)), is_users_grammar=True), None
    from mindful.generate.schema import schema_of

    schema = schema_of(json_schema, db.check)
    return sampling._replace(grammar=schema.grammar, schema=schema.schema), schema


def _encode(generator: Generator, system: str, prompt: str) -> list[int]:
    messages = [Message("system", system)] if system else []
    return generator.encode([*messages, Message("user", prompt)])


def tokens_of(generator: Generator, messages: Sequence[Message]) -> list[int]:
    """Encode a prompt. Error 54000: it leaves no room for an answer."""
    tokens = generator.encode(messages)
    check_fits(tokens, generator)
    return tokens


def check_fits(tokens: Sequence[int], generator: Generator) -> None:
    """Raise 54000 if the prompt leaves no room for one token of answer."""
    if len(tokens) >= generator.context_length:
        raise ContextLengthError(
            f"the prompt has {len(tokens)} tokens, the model's context holds {generator.context_length}",
            "Shorten it, or register the model with a larger option context_length. "
            "llm_generate can cut it with truncate => true.",
        )


def check_length(name: str, text: str) -> None:
    """Raise 54000 if a text is longer than a memory can be."""
    size = len(text.encode("utf-8", errors="replace"))
    if size > LONGEST_TEXT:
        raise ContextLengthError(
            f"{name} has {size} bytes, more than {LONGEST_TEXT}", "Split it into several texts."
        )


def _recorded(db: Database) -> bool:
    """Return whether the setting generation_log is true and the transaction may write."""
    wanted = db.one(
        """select pg_catalog.current_setting('transaction_read_only') = 'off'
               and mindful.setting_get('generation_log') = 'true' as log"""
    )
    return bool(wanted["log"])


def _real(value: float) -> float:
    """Return a number that the type real holds."""
    return value if abs(value) >= _LEAST_REAL else 0.0
