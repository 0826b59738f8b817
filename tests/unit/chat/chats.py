"""Chats over a fake database."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from mindful.chat.chat import Arguments, Chat
from mindful.confidence.action import Settings
from mindful.core.ports import Row
from unit.fakes import FakeDatabase


def turns_of(*contents: str) -> list[Row]:
    """A session's messages, user and assistant in turn, oldest first."""
    return [
        {"id": 100 + at, "turn": 1 + at, "role": ("user", "assistant")[at % 2], "content": content}
        for at, content in enumerate(contents)
    ]


def memory_of(number: int, content: str, **changed: Any) -> Row:
    """A memory as memory_recall finds it, well related to the message."""
    found = {
        "id": number,
        "content": content,
        "role": None,
        "score": 1.0,
        "similarity": 0.9,
        "bm25": 3.0,
        "said_next": None,
    }
    return found | changed


def memories_of(*contents: str) -> list[Row]:
    return [memory_of(number, content) for number, content in enumerate(contents, 1)]


DEFAULTS = Settings._field_defaults | {
    "assistant_changes": True,
    "chat_lessons": True,
    "chat_memories": 3,
    "chat_system_prompt": None,
    "chat_temperature": 0,
    "chat_tools": "off",
    "chat_unknown": True,
    "chat_window": 30,
    "core_memory_tokens": 1000,
    "generation_log": True,
    "session_summary": "off",
}


def found_window(settings: Mapping[str, Any] | None) -> int:
    return int((settings or {}).get("chat_window", 30))


def database(
    turns: Sequence[Row] = (),
    memories: Sequence[Row] = (),
    of_session: str | None = "system",
    shown_from: int | None = None,
    core: Sequence[Row] = (),
    summaries: Sequence[Row] = (),
    settings: Mapping[str, Any] | None = None,
    prompts: Mapping[str, Row] | None = None,
    **options: Any,
) -> FakeDatabase:
    model = {"name": "s", "kind": "generator", "provider": "scripted", "source": "", "sha256": "cafe"}

    def read(_session: str, count: int, _model: str, _message: str | None) -> Sequence[Row]:
        found = {
            "settings": DEFAULTS | dict(settings or {}),
            "prompts": prompts or {},
            "session": {"system_prompt": of_session},
            "turns": list(reversed(turns))[: count and found_window(settings) + count],
            "shown_from": shown_from,
            "core": list(core),
            "labeled": True,
        }
        return [{"found": json.dumps(found)}]

    def stored(_session: str, _title: str | None, messages: str, _shown: list[int]) -> Sequence[Row]:
        return [{"id": 200 + at} for at, _ in enumerate(json.loads(messages))]

    return FakeDatabase(
        {
            "similarity >= $5": lambda *arguments: [
                row for row in memories if row["role"] == "user" and row["similarity"] >= arguments[4]
            ],
            "_mindful.model_find": lambda kind, *_: (
                [model | {"options": json.dumps(options)}] if kind == "generator" else []
            ),
            "_mindful.session_read": read,
            "memory_recall": memories,
            "_mindful.assistant_change": [{"_mindful.assistant_change": None}],
            "_mindful.recap_shown": list(reversed(summaries)),
            "_mindful.turn_insert": stored,
            "insert into mindful.generation": [{"id": 1}],
            "_mindful.lesson": [],
            "_mindful.recall_coverage": [
                {"coverage": 0.5, "best": 0.5, "mean": 0.5, "length": 2.0, "asking": 0.0}
            ],
            "_mindful.calibrator_find": [{"id": None, "labels": 0, "correct": 0}],
            "insert into mindful.decision": [{"id": 1}],
            "transaction_read_only": [{"log": True}],
        }
    )


def chat_of(
    db: FakeDatabase,
    message: str | None = "question",
    session_id: str | None = "s1",
    max_tokens: int = 16,
    memories: int = 3,
) -> Chat:
    drawing = (0.95, 40, 0.05, 0.0, 0.0, 1.0)
    given = Arguments(session_id, None, max_tokens, 0.0, None, memories, *drawing)
    return Chat(db, message, given)


def shown(conversation: Chat) -> list[tuple[str, str]]:
    return [(part.part, part.content) for part in conversation.context.parts]
