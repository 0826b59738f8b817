"""Facts that people and applications wrote, read as facts that rules extracted."""

from __future__ import annotations

from collections.abc import Iterator

from mindful.core.pattern import IGNORECASE, Short, linear
from mindful.core.ports import Row
from mindful.learning.extraction import rule

USER = "The user"
"""The subject of what a message without a speaker says about its author."""
_LONGEST = 2000
_USER = linear(r"\b[Tt]he user\b")
_VERB = Short(
    r"^(\S.{1,78}?\S)\s+(?:is|are|was|were|has|have|had|can|cannot|must|should|will|may|does|do|did|happens?|means?|needs?|uses?"
    r"|runs?|goes|go|takes?|makes?|gets?|costs?|starts?|ends?|opens?|closes?|lives?|works?|belongs?|[a-z]+ed)\b",
    _LONGEST,
    IGNORECASE,
)


def read(row: Row, name: str | None) -> Iterator[Row]:
    """Yield a stored fact with its subject, and with the user's name in place of "The user".

    A fact that was written gets subject, relation and object by the rules of extraction. If they find none, the subject
    is what stands before its first verb.
    """
    if not row["curated"]:
        yield _named(row, name)
        return
    content = row["content"]
    found = list(rule.statements(content, USER, None)) if len(content) <= _LONGEST else []
    if row["question"] or not found:
        yield _named({**row, "subject": _topic(content), "relation": "", "object": content}, name)
        return
    for statement in found:
        parts = {
            "subject": statement.subject,
            "relation": statement.relation,
            "object": statement.object,
            "content": statement.content,
        }
        yield _named({**row, **parts}, name)


def _topic(content: str) -> str:
    head = _VERB.match(content)
    words = head[1].split() if head else content.split()[:6]
    topic = " ".join(words).strip(" ,;:.")
    return topic if len(words) == 1 else f'"{topic}"'


def _named(row: Row, name: str | None) -> Row:
    if name is None or (row["subject"], row["relation"]) == (USER, "name"):
        return row
    subject, content = (_USER.sub(lambda _: name, row[key]) for key in ("subject", "content"))
    return {**row, "subject": subject, "content": content}
