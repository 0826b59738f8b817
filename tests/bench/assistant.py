"""Conversations of a person with an assistant whose answers are long, generic and partly code.

The person's messages are short, and some state one fact. Each topic comes up in two sessions, and the fact is stated in
one of them. Questions ask for the facts. Everything is written from phrases by a seed.
"""

from __future__ import annotations

import inspect
import random
import textwrap
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from locomo import Conversation, Question

_HERE = Path(__file__).parent
_HEAD, *TOPICS = [
    tuple(line.split("|")) for line in (_HERE / "assistant_topics.txt").read_text().splitlines()
]
ADVICE = (_HERE / "assistant_advice.txt").read_text().splitlines()
REMARKS = (
    "Thanks, that helps a lot.",
    "Could you say that in fewer words?",
    "I will think about it.",
    "Hm, I am not sure about the third point.",
    "Can you give me an example?",
    "What would you do first?",
)
CODE = [
    inspect.getsource(function)
    for module in (inspect, random, textwrap)
    for _, function in inspect.getmembers(module, inspect.isfunction)
    if 600 < len(inspect.getsource(function)) < 2500
]
_TOPICS_EACH = 12


def conversations(seed: int = 1) -> list[Conversation]:
    """Write conversations of a dozen topics each."""
    rng = random.Random(seed)
    topics = TOPICS[:]
    rng.shuffle(topics)
    return [
        _conversation(rng, f"assistant-{seed}-{at // _TOPICS_EACH + 1}", topics[at : at + _TOPICS_EACH])
        for at in range(0, len(topics), _TOPICS_EACH)
    ]


def _conversation(rng: random.Random, name: str, topics: list[tuple[str, ...]]) -> Conversation:
    plan = [(topic, told) for topic in topics for told in (True, False)]
    rng.shuffle(plan)
    sessions, questions = {}, []
    for number, (topic, told) in enumerate(plan, 1):
        texts = list(_texts(rng, topic, told))
        held = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=number)
        sessions[number] = [
            _message(number, turn, texts[turn - 1], held) for turn in range(1, len(texts) + 1)
        ]
        if told:
            turn = next(at for at, text in enumerate(texts, 1) if topic[2] in text)
            questions.append(Question(topic[4], 4, frozenset({(number, turn)})))
    return Conversation(name, sessions, questions)


def _message(session: int, turn: int, text: str, held: datetime) -> dict[str, Any]:
    return {
        "role": "user" if turn % 2 else "assistant",
        "content": text,
        "created_at": held.isoformat(),
        "metadata": {"session": session, "turn": turn},
    }


def _texts(rng: random.Random, topic: tuple[str, ...], told: bool) -> Iterator[str]:
    """Yield the person's messages and the answers in turn."""
    name, first, fact, second, _ = topic
    style = rng.random()
    if not told:
        first = rng.choice(
            (
                f"Can you tell me more about {name}?",
                f"What else matters for the {name}?",
                f"I have another question about the {name}.",
            )
        )
    yield f"{first} {fact}" if told and style < 0.4 else first
    yield _answer(rng, name, first)
    for _ in range(rng.randint(0, 2)):
        yield rng.choice(REMARKS)
        yield _answer(rng, name, first)
    if told and style >= 0.4:
        yield f"{fact} {second}" if style < 0.8 else fact
    else:
        yield second if told else f"How long does the {name} take?"
    yield _answer(rng, name, second)


def _answer(rng: random.Random, topic: str, request: str) -> str:
    advice = rng.sample(ADVICE, rng.randint(9, 22))
    steps = "\n".join(f"{at}. {text.format(t=topic)}" for at, text in enumerate(advice, 1))
    answer = (
        f"Great question! {request.rstrip('?')} is something many people ask. Here is a detailed guide to the {topic}:"
        f"\n\n{steps}\n\nI hope this helps with your {topic}. Let me know if you have further questions."
    )
    if rng.random() < 0.25:
        answer += f"\n\nHere is a small script to keep track:\n\n```python\n{rng.choice(CODE)}\n```"
    return answer
