"""Messages as they are typed in haste, "waht is my mums name", as rules are to read them.

What is stored, shown and recalled by stays as it was typed. Memories are compared with the question as spelled.
The rules are of English.
"""

from __future__ import annotations

from mindful.core.pattern import IGNORECASE, linear

_CONTRACTED = linear(
    r"\b(?:(?:what|where|when|who|how|that|there|here|he|she|let)(?=s\b)|"
    r"it(?=s (?:\d|(?:the|an?|on|in|at|not|my|our|been|now|called|just|all|so|too)\b))|i(?=(?:m|ve)\b)|"
    r"(?:you|they)(?=(?:re|ve)\b)|(?:do|does|did|is|are|was|were|have|has|had|could|would|should|ca|wo)n(?=t\b))",
    IGNORECASE,
)
"""A contraction up to the place of its apostrophe. What is a word without one does not match: "its name", "ill"."""
_KIN = (
    "mum|mom|dad|nan|gran|grandma|grandpa|sister|brother|wife|husband|partner|boyfriend|girlfriend|boss|son|daughter|"
    "friend|mate|flatmate|roommate|neighbou?r|doctor|dog|cat|aunt|uncle|cousin|nephew|niece|baby"
)
_POSSESSED = linear(
    rf"\b((?:my|our) (?:{_KIN}))s (?=[a-z0-9])(?!(?:are|were|have|and|or|do|did|live|work|all|both)\b)",
    IGNORECASE,
)
_ASKED = {
    "what": ("waht", "hwat", "whta", "wath", "wht"),
    "where": ("wehre", "whre", "wher", "hwere", "wheer"),
    "when": ("wehn", "hwen", "whne"),
    "which": ("wich", "whcih", "wihch", "whihc"),
}
_MEANT = {typed: word for word, all_typed in _ASKED.items() for typed in all_typed}
_MISTYPED = linear(rf"^\W*({'|'.join(_MEANT)})(?=s?\b)", IGNORECASE)
"""A word that a question begins with, with two letters exchanged or one left out."""
_ARTICLE = linear(r"\b(?:teh|hte)\b")


def is_mistyped(sentence: str) -> bool:
    """Return whether a sentence begins with a mistyped word of a question: "waht is the time"."""
    return _MISTYPED.match(sentence) is not None


def spelled(message: str) -> str:
    """Return a message as it was meant: "what's my mum's name" for "wahts my mums name"."""
    if mistyped := _MISTYPED.match(message):
        message = f"{message[: mistyped.start(1)]}{_MEANT[mistyped[1].lower()]}{message[mistyped.end() :]}"
    message = _ARTICLE.sub("the", message)
    return _POSSESSED.sub(r"\1's ", _CONTRACTED.sub(r"\g<0>'", message))
