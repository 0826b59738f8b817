"""Whether a message states something and asks for nothing. The rules are of English.

They would rather miss a statement than take a request for one.
"""

from __future__ import annotations

from mindful.conversation.expected import sentences
from mindful.core.pattern import CAPITAL, IGNORECASE, Short, linear

_LONGEST = 300
"""Characters of a message that is read."""
_FEWEST = 5
"""Words of the shortest statement: what is shorter tells of a mood, or belongs to what was said before."""
_FEWEST_NAMED = 4
"""Words of the shortest statement about a person or a thing: "Lena works at Bosch.", "The van takes diesel."."""
_OPENS = (
    r"^\W*(?:(?:hi|hello|hey|ok|okay|so|well|and|but|oh|now|also|fyi|btw|by the way|good (?:morning|afternoon|evening)|"
    r"no|yes|actually|there|today|yesterday|tomorrow|tonight|"
    r"(?:this|last|next) (?:week|month|year|morning|evening|\w+day)|remember(?: that)?)\b\W*)*"
)
_VERB = (
    r"(?:am|is|are|was|were|has|have|had|will|got|gets?|lives?|works?|likes?|loves?|hates?|wants?|plays?|comes?|came|goes|"
    r"went|costs?|starts?|ends?|begins?|opens?|closes?|breaks?|broke|needs?|runs?|ran|takes?|took|makes?|made|gives?|gave|"
    r"keeps?|kept|leaves?|left|says?|said|told|sells?|sold|buys?|bought|pays?|paid|owns?|uses?|drinks?|eats?|ate|speaks?|"
    r"stud(?:y|ies)|teach(?:es)?|taught|wrote|won|lost|meets?|met|\w{2,}ed|"
    r"(?:land|lead|drive|ride|smoke|sing|cook|bake|grow|sit|stand|hang|belong|contain|hold|weigh|measure|expire|arrive|"
    r"depart|move|visit|collect|repair|clean|feed|walk|sleep|snore|write|read|paint|build|send|bring|wear|prefer|support|"
    r"charge|last|happen|know|see|swim|fit|stay|share|rent|lend|borrow|cover|serve|arrange|manage)s|flies|carries|"
    r"flew|sang|drove|rode|built|sent|brought|wore|held|hung|lay|sat|stood|fell|grew|drew|knew|saw|caught|chose|slept|"
    r"woke|fed|led|spent|lent|hid|became|began|found|forgot)"
)
_NAMED = rf"(?:{CAPITAL}[\w'-]+(?:,? (?:and )?)){{1,4}}{_VERB}\b"
_TELLS_OF = Short(
    r"^(?!(?:It|That|This|There|These|Those|He|She|They|We|I|My|Our|The|Everything|Nothing|Something|Everybody|Nobody|"
    rf"All|Some|Not|No|Great|Good|Nice|Bad|Fine|Hard)\b){_NAMED}",
    _LONGEST,
)
_TELLS_OF_THING = Short(
    r"^(?:my|our|the|his|her|their) \w+ (?!\w+ (?:great|good|fine|nice|bad|cool)\b)", _LONGEST, IGNORECASE
)
_STATES = tuple(
    Short(_OPENS + source, _LONGEST, flags)
    for source, flags in (
        (r"(?:i|we)(?:'m|'ve|'re|'ll|'d)? \w", IGNORECASE),
        (
            r"(?:in|on|at|since|after|before|for|from|with|every)\b[^.!?]{0,60}?[ ,](?:i|we)(?:'m|'ve|'re|'ll|'d)? \w",
            IGNORECASE,
        ),
        (
            r"(?:my|our|the|a|an|he|she|it|its|they|there|this|that|his|her|their)\b[^.!?]{0,80}?"
            rf"(?: |'s ){_VERB}\b",
            IGNORECASE,
        ),
        (_NAMED, 0),
        (rf"{CAPITAL}[\w-]+['\u2019]s (?:[\w-]+ ){{1,3}}?{_VERB}\b", 0),
    )
)
_GREETS = Short(_OPENS + r"$", _LONGEST, IGNORECASE)
_RELATIVE = linear(
    r"(?:[,;] (?:\w+ of )?|\b(?:of|for|in|on|at|to|with|from|by) |\b(?:someone|somebody|people) |"
    r"\b(?:an?|the|my|our|his|her|their|some|another)(?: [\w'-]+){1,3} )(?:who|whom|whose|which)\b"
    r"(?! (?:one|do|does|did)\b)",
    IGNORECASE,
)
"""A relative clause, which asks nothing."""
_ASKS = linear(
    r"\?|\b(?:you|your|yours|please|help|advi[cs]e|suggest(?:ion)?s?|idea|want to|would like|"
    r"(?<!that )(?:i|we)(?: \w+)? (?:want|need)|feel|feeling|"
    r"'d like|wonder(?:ing)?|wish|let's|let us|should|how to|what|why|who|whom|whose|which|forgot(?:ten)?|"
    r"(?:not|\w+n't) (?:know|remember|recall|sure|understand)|looking for|trying to|curious)\b",
    IGNORECASE,
)
_REQUESTS = linear(
    r"[,;] (?:and |then |so )*(?!(?:i|we|he|she|they|for|with|to|of|like|as|but|because|since|when|if|and|or|in|on|at|"
    r"by|from|about|is|was)\b)[a-z]+ (?:it|them|me|us|my|this|that|these)\b",
    IGNORECASE,
)
"""An imperative and its object: "I am hungry, give me a recipe"."""
_TEXT = linear(r"\n|(?<!\d):|:(?!\d)")
"""What comes before a text that the message is about, but not within a time of day."""
_WORD = linear(r"\w+")


def declares(message: str) -> bool:
    """Return whether each sentence of a message has the form of a statement. A relative clause is part of one."""
    plain = message.replace("\u2019", "'")
    if len(plain) > _LONGEST or _ASKS.search(_RELATIVE.sub(" ", plain)) or _REQUESTS.search(plain):
        return False
    told = [sentence for sentence in sentences(plain) if not _GREETS.search(sentence)]
    heads = [_RELATIVE.split(sentence)[0] for sentence in told]
    return bool(told) and all(any(form.search(head) for form in _STATES) for head in heads)


def states(message: str) -> bool:
    """Return whether a message only tells something: "My cat is called Misha." tells, "I need a recipe." asks."""
    is_of_one = _TELLS_OF.search(message) or _TELLS_OF_THING.search(message)
    fewest = _FEWEST_NAMED if is_of_one else _FEWEST
    return len(_WORD.findall(message)) >= fewest and not _TEXT.search(message) and declares(message)
