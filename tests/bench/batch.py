"""Labels and many answers, against one call a row in the same connection, in one run.

Every function takes a way to connect and how often to repeat, and returns rows of which each makes one Figure:
what, unit, ours, the peer's, goal. The two sides take turns.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

import psycopg

Row = tuple[str, str, list[float], list[float], str]
Connect = Callable[[], psycopg.Connection]

ROWS = 1000
SINGLE_ROWS = 40
"""Rows that the peer is timed on: a rate needs no more, and one call a row is slow."""
PROMPTS = 32
TOKENS = 64

# None of these stood in the set that the form of the prompt was chosen with.
SENTIMENT = ("What is the sentiment of the text?", ("positive", "negative"))
TOPIC = ("What is the topic of the text?", ("sports", "politics", "cooking", "technology"))
REVIEWS = (
    ("The view from our balcony was breathtaking.", "positive"),
    ("I waited an hour and then they cancelled my order.", "negative"),
    ("Great value, I have already recommended it to friends.", "positive"),
    ("The zipper tore on the very first trip.", "negative"),
    ("This little cafe makes the best cake in town.", "positive"),
    ("The instructions are useless and parts are missing.", "negative"),
    ("Our guide was funny, patient and knew everything.", "positive"),
    ("Never again, the flat was filthy.", "negative"),
    ("The sound is crisp and the headphones are comfortable.", "positive"),
    ("It stopped charging and support just ignores me.", "negative"),
    ("A moving film with superb performances.", "positive"),
    ("The lecture was boring and far too long.", "negative"),
    ("My garden has never looked better, thank you!", "positive"),
    ("They charged me twice and refuse to refund it.", "negative"),
    ("So happy with my new bike.", "positive"),
    ("The shoes hurt and the color is ugly.", "negative"),
    ("Quick delivery and lovely packaging.", "positive"),
    ("What an awful smell, I threw it away.", "negative"),
    ("The nurses were kind and took good care of him.", "positive"),
    ("The worst customer service I have ever met.", "negative"),
)
NEWS = (
    ("The midfielder signed a contract with a new club.", "sports"),
    ("The chancellor defended her tax plan before the house.", "politics"),
    ("Whisk the cream until it forms soft peaks.", "cooking"),
    ("Engineers shrank the transistor once more.", "technology"),
    ("The relay team set a world record in the pool.", "sports"),
    ("The opposition called for a vote of no confidence.", "politics"),
    ("Fry the garlic, then add the tomatoes and the pasta.", "cooking"),
    ("The router drops its wireless connection after the firmware upgrade.", "technology"),
    ("A late goal gave the visitors a draw.", "sports"),
    ("Diplomats met to discuss sanctions.", "politics"),
    ("Preheat the oven and butter the baking tin.", "cooking"),
    ("The startup trains neural networks on its own servers.", "technology"),
    ("She won the gold medal in the high jump.", "sports"),
    ("The governor vetoed the bill on immigration.", "politics"),
    ("Marinate the fish in lemon juice and olive oil.", "cooking"),
    ("Programmers can now test their code in the cloud.", "technology"),
    ("The basketball season starts in October.", "sports"),
    ("The party chose its candidate for the senate.", "politics"),
    ("Chop the carrots and boil them for ten minutes.", "cooking"),
    ("Hackers stole passwords from the web site.", "technology"),
)
SETS = ((SENTIMENT, REVIEWS), (TOPIC, NEWS))

FORM = "{instruction}\nLabels: {labels}\n\nText: {text}\nLabel:"
"""What llm_classify reads, put as a prompt."""
QUESTION = "{instruction} Answer with one of these labels: {labels}.\n\n{text}"
"""Better words for a chat: the answers are shorter, and more often a label."""
THINGS = (
    "a lighthouse",
    "the sea",
    "an old clock",
    "winter",
    "a small town",
    "bread",
    "the moon",
    "a violin",
)


def labels(connect: Connect, repeats: int) -> list[Row]:
    """Rows per second of labeling short texts: in one call, one by one, and by asking for the label in words."""
    (instruction, choice), texts = SENTIMENT, [text for text, _ in (*REVIEWS, *NEWS)]
    many, one = [], []
    asked: dict[str, list[float]] = {FORM: [], QUESTION: []}
    with connect() as db:
        for repeat in range(repeats + 1):
            # A text given again would be answered from memory.
            rows = [f"{texts[at % len(texts)]} {repeat}." for at in range(ROWS if repeat else SINGLE_ROWS)]
            seconds = _seconds(
                db,
                "select count(*) from unnest(llm_classify_many(%s, %s, %s))",
                rows,
                list(choice),
                instruction,
            )
            classified = _seconds(
                db,
                "select count(llm_classify(t, %s, %s)) from unnest(%s::text[]) t",
                list(choice),
                instruction,
                rows[:SINGLE_ROWS],
            )
            for words, extra in ((FORM, ""), (QUESTION, ", max_tokens => 8")):
                questions = [_question(words, instruction, choice, text) for text in rows[:SINGLE_ROWS]]
                generated = _seconds(
                    db, f"select count(llm_generate(t{extra})) from unnest(%s::text[]) t", questions
                )
                if repeat:
                    asked[words].append(SINGLE_ROWS / generated)
            if repeat:  # the first loads the model
                many.append(len(rows) / seconds)
                one.append(SINGLE_ROWS / classified)
    return [
        (
            f"llm_classify_many, {ROWS} short texts, peer: the form as a prompt",
            "rows/s",
            many,
            asked[FORM],
            ">= 5",
        ),
        ("the same, peer: a question, 8 tokens at most", "rows/s", many, asked[QUESTION], "-"),
        ("llm_classify in a query, peer: the form as a prompt", "rows/s", one, asked[FORM], "-"),
        ("the same, peer: a question, 8 tokens at most", "rows/s", one, asked[QUESTION], ">= 1"),
    ]


def label_quality(connect: Connect, repeats: int) -> list[Row]:
    """Right labels among hand-made sentences, against the label that llm_generate names first."""
    right: dict[str, list[float]] = {"asked": [], "prior subtracted": [], "as it is": []}
    with connect() as db:
        for (instruction, choice), sentences in SETS:
            texts, wanted = [text for text, _ in sentences], [label for _, label in sentences]
            for how, subtract in (("prior subtracted", True), ("as it is", False)):
                found = db.execute(
                    "select label from unnest(llm_classify_many(%s, %s, %s, subtract_prior => %s))",
                    (texts, list(choice), instruction, subtract),
                ).fetchall()
                right[how].append(sum(row[0] == label for row, label in zip(found, wanted, strict=True)))
            questions = [_question(QUESTION, instruction, choice, text) for text in texts]
            answers = db.execute(
                "select llm_generate(t, max_tokens => 16) from unnest(%s::text[]) t", (questions,)
            ).fetchall()
            right["asked"].append(
                sum(_first(row[0], choice) == label for row, label in zip(answers, wanted, strict=True))
            )
    return [
        (
            f"right labels of {len(REVIEWS)} reviews and {len(NEWS)} news, {how}, peer llm_generate",
            "right",
            [sum(right[how])],
            [sum(right["asked"])],
            "> 1",
        )
        for how in ("prior subtracted", "as it is")
    ]


def answers(connect: Connect, repeats: int) -> list[Row]:
    """Tokens per second of many prompts at once, against one call each; and how many answers are the same."""
    prompts = [
        f"Write a long {kind} about {thing}."
        for kind in ("story", "poem", "letter", "report")
        for thing in THINGS
    ][:PROMPTS]
    ours: list[float] = []
    peers: list[float] = []
    same: list[float] = []
    with connect() as db:
        _seconds(db, "select llm_generate('Hi', max_tokens => 1)")
        for _ in range(repeats):
            made, texts = _timed(db, "select llm_generate_many(%s, max_tokens => %s)", prompts, TOKENS)
            ours.append(made)
            rate, single = _timed(
                db,
                "select array_agg(llm_generate(t, max_tokens => %s)) from unnest(%s::text[]) t",
                TOKENS,
                prompts,
            )
            peers.append(rate)
            same.append(sum(a == b for a, b in zip(texts, single, strict=True)))
    return [
        (f"llm_generate_many, {PROMPTS} prompts of {TOKENS} tokens", "tokens/s", ours, peers, ">= 2"),
        ("answers equal to those of single calls", "answers", same, [float(PROMPTS)] * repeats, "-"),
    ]


def _question(words: str, instruction: str, choice: Sequence[str], text: str) -> str:
    return words.format(instruction=instruction, labels=", ".join(choice), text=text)


def _first(answer: str, choice: Sequence[str]) -> str | None:
    """Return the label that an answer names first."""
    places = {answer.lower().find(label): label for label in choice if label in answer.lower()}
    return places[min(places)] if places else None


def _timed(db: psycopg.Connection, sql: str, *arguments: object) -> tuple[float, list[str]]:
    """Tokens per second of a statement, as the log has it, and the texts it gives."""
    counted = "select coalesce(max(id), 0), coalesce(sum(completion_tokens), 0) from generation"
    before = db.execute(counted).fetchone() or (0, 0)
    started = time.perf_counter()
    row: Any = db.execute(sql, arguments).fetchone()
    seconds = time.perf_counter() - started
    after = db.execute(counted).fetchone() or (0, 0)
    return (after[1] - before[1]) / seconds, row[0]


def _seconds(db: psycopg.Connection, sql: str, *arguments: object) -> float:
    started = time.perf_counter()
    db.execute(sql, arguments)
    return time.perf_counter() - started
