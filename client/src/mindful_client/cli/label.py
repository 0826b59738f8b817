"""mindful label, mindful calibrate."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import click
from psycopg import sql

from mindful_client.calls.statement import Call
from mindful_client.cli.output import given, json_text, printable, show
from mindful_client.client import Client
from mindful_client.types import CalibrationDetail

_QUEUE = sql.SQL("select message_id, question, answer, why from mindful.label_queue limit %(count)s").format()
_CORRECT = {"right": True, "wrong": False}


class _Word(click.Choice):  # type: ignore[type-arg]  # click 8.1 has no arguments here
    """One of several words, of which the beginning is enough."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        begun = [word for word in self.choices if value and word.startswith(value.strip().lower())]
        return super().convert(begun[0] if len(begun) == 1 else value, param, ctx)


@click.command()
@click.option("--note", help="What is right instead. The model sees it when a similar question comes.")
@click.option(
    "-n", "count", type=click.IntRange(min=1), default=10, show_default=True, help="Answers to ask about."
)
@click.argument("message_id", type=int, required=False)
@click.argument("verdict", type=_Word(list(_CORRECT)), required=False)
@click.pass_obj
def label(client: Client, note: str | None, count: int, message_id: int | None, verdict: str | None) -> None:
    """Label the answer MESSAGE_ID as right or wrong.

    Without arguments, show the answers that most need a label, and ask about each. Labels teach `mindful calibrate`
    which answers are probably right.
    """
    if message_id is not None and verdict is not None:
        client.answer_label(message_id, _CORRECT[verdict], **given(note=note))
        return
    if message_id is not None or note is not None:
        raise click.UsageError("give MESSAGE_ID and right or wrong, or neither")
    labeled = 0
    for row in _waiting(client, count):
        verdict = _ask(row)
        if verdict == "quit":
            break
        if verdict in _CORRECT:
            client.answer_label(row[0], _CORRECT[verdict])
            labeled += 1
    show(f"{labeled} {'answer' if labeled == 1 else 'answers'} labeled.", err=True)


@click.command()
@click.option(
    "--error-budget", type=float, help="Largest share of wrong answers among those given; 0.1 by default."
)
@click.option(
    "--delta", type=float, help="Probability that the budget is exceeded by bad luck; 0.1 by default."
)
@click.option("--model", help="Generator whose answers are calibrated; the default generator if not given.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array with all columns.")
@click.pass_obj
def calibrate(
    client: Client, error_budget: float | None, delta: float | None, model: str | None, as_json: bool
) -> None:
    """Learn from labels how probable it is that an answer is right, and from where on answers are not flagged."""
    results = client.calibrate(**given(error_budget=error_budget, delta=delta, model=model))
    if as_json:
        show(json_text([dataclasses.asdict(result) for result in results], indent=2))
    else:
        show("\n".join(map(described, results)))


def _waiting(client: Client, count: int) -> Iterator[Sequence[Any]]:
    yield from client._run(Call(_QUEUE, {"count": count}, list))


def _ask(row: Sequence[Any]) -> str:
    """Show an answer and return the user's verdict: right, wrong, skip or quit."""
    message_id, question, answer, why = row
    show(f"\n{printable(question or '')}\n  {printable(answer)}\n  (id {message_id}; {why})")
    words = _Word([*_CORRECT, "skip", "quit"])
    verdict: str = click.prompt(
        "[r]ight, [w]rong, [s]kip or [q]uit", type=words, default="skip", show_choices=False
    )
    return verdict


def described(result: CalibrationDetail) -> str:
    """Return a calibration as one line."""
    kind = f"{result.model} {'with' if result.with_memory else 'without'} memories, tier {result.signal_tier}"
    figures = f"{result.labels} labels, {result.wrong} wrong"
    if result.threshold is not None:
        figures += f", threshold {result.threshold:.2f}"
    if result.coverage is not None:
        figures += f", coverage {result.coverage:.0%}"
    return ". ".join(filter(None, (f"{kind}: {result.status} ({figures})", result.reason)))
