"""LoCoMo's conversations and questions, read as its own evaluation does."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

CATEGORIES = {4: "single-hop", 1: "multi-hop", 2: "temporal", 3: "open-domain", 5: "adversarial"}

Turn = tuple[int, int]
"""Number of the session, number of the turn in it: D3:7 is (3, 7)."""


@dataclass(frozen=True)
class Question:
    """A question, and the turns that hold its answer."""

    text: str
    category: int
    evidence: frozenset[Turn]


@dataclass(frozen=True)
class Conversation:
    """Sessions of turns, and questions on them."""

    name: str
    sessions: dict[int, list[dict[str, Any]]]
    questions: list[Question]


def read(path: Path) -> list[Conversation]:
    """Read a file of LoCoMo."""
    return [_conversation(sample) for sample in json.loads(path.read_text())]


def joined(conversation: Conversation, number: int) -> Conversation:
    """Join so many turns to one long message of the user, which holds the evidence of each."""
    sessions = {
        session: [
            turns[at]
            | {"role": "user", "content": "\n".join(turn["content"] for turn in turns[at : at + number])}
            for at in range(0, len(turns), number)
        ]
        for session, turns in conversation.sessions.items()
    }
    place = {
        (turn["metadata"]["session"], turn["metadata"]["turn"]): (
            session,
            turns[at - at % number]["metadata"]["turn"],
        )
        for session, turns in conversation.sessions.items()
        for at, turn in enumerate(turns)
    }
    questions = [
        replace(question, evidence=frozenset(place[turn] for turn in question.evidence if turn in place))
        for question in conversation.questions
    ]
    return Conversation(conversation.name, sessions, questions)


def _conversation(sample: dict[str, Any]) -> Conversation:
    questions = [
        Question(
            qa["question"],
            qa["category"],
            # Some are malformed, such as "D8:6; D9:17" and "D:11:26".
            frozenset((int(s), int(t)) for s, t in re.findall(r"D:?(\d+):(\d+)", " ".join(qa["evidence"]))),
        )
        for qa in sample["qa"]
    ]
    return Conversation(sample["sample_id"], dict(_sessions(sample["conversation"])), questions)


def _sessions(conversation: dict[str, Any]) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    for key in conversation:
        if found := re.fullmatch(r"session_(\d+)", key):
            held = datetime.strptime(conversation[f"{key}_date_time"], "%I:%M %p on %d %B, %Y").replace(
                tzinfo=UTC
            )
            yield (
                int(found[1]),
                [_message(turn, held, conversation["speaker_a"]) for turn in conversation[key]],
            )


def _message(turn: dict[str, Any], held: datetime, first_speaker: str) -> dict[str, Any]:
    """Write a turn as the paper's retrieval unit does, what is seen in a picture included."""
    text = f'{turn["speaker"]} said, "{turn["text"]}"'
    if turn.get("blip_caption"):
        text += f" and shared {turn['blip_caption']}"
    found = re.fullmatch(r"D(\d+):(\d+)", turn["dia_id"])
    assert found
    return {
        "role": "user" if turn["speaker"] == first_speaker else "assistant",
        "content": text,
        "created_at": held.isoformat(),
        "metadata": {"session": int(found[1]), "turn": int(found[2])},
    }
