"""What a classifier from one's own labeled tickets gains over the default model, in accuracy and time.

Tickets are written from phrases. In one set the phrases of the tickets that are asked were trained on with other words
around them, in the other set no asked phrase was trained on.
"""

from __future__ import annotations

import argparse
import itertools
import random
import time
from collections.abc import Iterator, Mapping, Sequence

import psycopg

PHRASES: Mapping[str, Sequence[str]] = {
    "urgent": (
        "The {part} is down and nobody can work.",
        "We lost all data of the {part} last night.",
        "Payments fail for every customer since an hour ago, the {part} answers with error 500.",
        "There is a security breach in the {part}, passwords are public.",
        "Production stopped: the {part} does not start any more.",
        "All our shops are offline, the {part} cannot be reached.",
        "The {part} deletes orders of customers right now, please stop it.",
        "Nobody in the company can log in, the {part} rejects everybody.",
    ),
    "high": (
        "The {part} crashes several times a day.",
        "Three of our customers see wrong totals in the {part}.",
        "The {part} became so slow that our team loses hours.",
        "Since the update the export of the {part} leaves out half of the rows.",
        "We have a deadline on Friday and the {part} does not print invoices.",
        "Mails from the {part} do not arrive at some customers.",
        "One department cannot use the {part} since this morning.",
        "The backup of the {part} failed twice this week.",
    ),
    "normal": (
        "How do I add a new user to the {part}?",
        "The {part} shows the date in the wrong format.",
        "Please change the address on our account of the {part}.",
        "I cannot find the report about last month in the {part}.",
        "The filter of the {part} forgets my choice when I come back.",
        "Could you explain the bill for the {part}?",
        "The {part} asks for my password twice.",
        "I would like to move our {part} to another plan.",
    ),
    "low": (
        "It would be nice if the {part} had a dark mode.",
        "There is a spelling mistake on the help page of the {part}.",
        "The logo in the {part} looks a little blurred.",
        "Thank you for the {part}, we like it a lot.",
        "Maybe you could sort the menu of the {part} by name one day.",
        "A small idea: the {part} could remember the window size.",
        "The color of the button in the {part} is not pretty.",
        "When you have time, add more icons to the {part}.",
    ),
}
PARTS = (
    "web shop",
    "billing portal",
    "warehouse app",
    "mail server",
    "time sheet",
    "customer database",
    "phone app",
)
OPENINGS = ("Hello,", "Hi team.", "Good morning,", "", "Dear support,", "Sorry to bother you.")
ENDINGS = ("Regards, Tom", "Thanks!", "", "Please let me know.", "Ana from sales", "Sent from my phone")
LABELS = "'{urgent,high,normal,low}'"
DESCRIPTIONS = (
    '{"urgent": "Work or business has stopped.", "high": "Important work is hindered.", '
    '"normal": "A question or a small fault.", "low": "An idea, praise or a matter of looks."}'
)


def tickets(known: bool, trained: bool, seed: int) -> Iterator[tuple[str, str]]:
    """Yield texts and priorities. Half of the phrases are trained on, or all of them with half of the parts."""
    rng = random.Random(seed)
    half = slice(0 if trained else 1, None, 2)
    for label, phrases in PHRASES.items():
        chosen, parts = (phrases, PARTS[half]) if known else (phrases[half], PARTS)
        for phrase, part in itertools.product(chosen, parts):
            text = f"{rng.choice(OPENINGS)} {phrase.format(part=part)} {rng.choice(ENDINGS)}".strip()
            yield text, label


def accuracy(db: psycopg.Connection, asked: Sequence[tuple[str, str]], call: str) -> tuple[float, float]:
    """Return the share of right labels, and rows per second, of one call."""
    texts, labels = zip(*asked, strict=True)
    db.execute(f"select llm_classify_many(%(t)s, {call})".encode(), {"t": list(texts[:2])})  # loads the model
    started = time.perf_counter()
    found = db.execute(
        f"select label from unnest(llm_classify_many(%(t)s, {call}))".encode(), {"t": list(texts)}
    ).fetchall()
    elapsed = time.perf_counter() - started
    right = sum(row[0] == label for row, label in zip(found, labels, strict=True))
    return right / len(asked), len(asked) / elapsed


def main() -> None:
    """Print a table of methods, accuracy and speed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dsn", required=True)
    parser.add_argument("--asked", type=int, default=100)
    options = parser.parse_args()
    with psycopg.connect(options.dsn, autocommit=True) as db:
        db.execute("create temporary table ticket (content text, priority text)")
        for known in (True, False):
            compare(db, known, options.asked)
        db.execute("select classifier_delete('bench')")


def compare(db: psycopg.Connection, known: bool, number: int) -> None:
    """Train on tickets, ask others, and print what each method gives."""
    asked = list(tickets(known, trained=False, seed=1))
    random.Random(2).shuffle(asked)
    asked = asked[:number]
    learned = list(tickets(known, trained=True, seed=3))
    db.execute("truncate ticket")
    with db.cursor().copy("copy ticket from stdin") as copy:
        for row in learned:
            copy.write_row(row)
    started = time.perf_counter()
    trained = db.execute(
        "select method, accuracy_neighbors, accuracy_logistic"
        " from classifier_train('bench', 'select content, priority from pg_temp.ticket')"
    ).fetchone()
    elapsed = time.perf_counter() - started
    print(
        f"{'Known' if known else 'Unknown'} phrases: {len(learned)} tickets trained on in {elapsed:.1f} s, {trained}\n"
    )
    print(f"| method | right of {len(asked)} | rows/s |\n|---|---|---|")
    for name, call in (
        ("labels only", LABELS),
        ("labels with descriptions", f"{LABELS}, descriptions => '{DESCRIPTIONS}'"),
        ("`classifier_train`", "classifier => 'bench'"),
    ):
        right, speed = accuracy(db, asked, call)
        print(f"| {name} | {right:.0%} | {speed:.0f} |", flush=True)
    print()


if __name__ == "__main__":
    main()
