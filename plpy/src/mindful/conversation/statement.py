"""Whether a message states something and asks for nothing. The rules are of English.

They would rather miss a statement than take a request for one.
"""

from __future__ import annotations

from mindful.core.pattern import IGNORECASE, Short, linear

_LONGEST = 300
"""Characters of a message that is read."""
_FEWEST = 5
"""Words of the shortest statement: what is shorter tells of a mood, or belongs to what was said before."""
_OPENS = (
    r"^\W*(?:(?:hi|hello|hey|ok|okay|so|well|and|but|oh|now|also|fyi|btw|by the way|good (?:morning|afternoon|evening)|"
    r"today|yesterday|tomorrow|tonight|(?:this|last|next) (?:week|month|year|morning|evening|\w+day)|"
    r"remember(?: that)?)\b\W*)*"
)
_VERB = (
    r"(?:am|is|are|was|were|has|have|had|will|got|gets?|lives?|works?|likes?|loves?|hates?|wants?|plays?|comes?|came|goes|"
    r"went|costs?|starts?|ends?|begins?|opens?|closes?|breaks?|broke|needs?|runs?|ran|takes?|took|makes?|made|gives?|gave|"
    r"keeps?|kept|leaves?|left|says?|said|told|sells?|sold|buys?|bought|pays?|paid|owns?|uses?|drinks?|eats?|ate|speaks?|"
    r"stud(?:y|ies)|teach(?:es)?|taught|wrote|won|lost|met|\w{2,}ed)"
)
_STATES = tuple(
    Short(_OPENS + source, _LONGEST, flags)
    for source, flags in (
        (r"(?:i|we)(?:'m|'ve|'re|'ll|'d)? \w", IGNORECASE),
        (
            r"(?:my|our|the|a|an|he|she|it|they|there|this|that|his|her|their)\b[^.!?]{0,80}?"
            rf"(?: |'s ){_VERB}\b",
            IGNORECASE,
        ),
        (rf"(?:[A-Z][\w'-]+(?:,? (?:and )?)){{1,4}}{_VERB}\b", 0),
    )
)
_ASKS = linear(
    r"\?|\b(?:you|your|yours|please|help|advi[cs]e|suggest(?:ion)?s?|idea|want to|need (?:to know|an?|some)|would like|"
    r"'d like|wonder(?:ing)?|wish|let's|let us|should|how to|what|why|who|whom|whose|which|forgot(?:ten)?|"
    r"(?:not|n't) (?:know|remember|recall|sure|understand)|looking for|trying to|curious)\b|[:\n]",
    IGNORECASE,
)
_WORD = linear(r"\w+")


def states(message: str) -> bool:
    """Return whether a message only tells something: "My cat is called Misha." tells, "I need a recipe." asks."""
    plain = message.replace("\u2019", "'")
    if len(plain) > _LONGEST or _ASKS.search(plain) or len(_WORD.findall(plain)) < _FEWEST:
        return False
    return any(form.search(plain) for form in _STATES)
