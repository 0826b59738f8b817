"""Messages as they are typed in haste, "whats my mums name", for rules that read contractions and possessives.

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


def spelled(message: str) -> str:
    """Return a message with its apostrophes: "what's my mum's name" for "whats my mums name"."""
    return _POSSESSED.sub(r"\1's ", _CONTRACTED.sub(r"\g<0>'", message))
