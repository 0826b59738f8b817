"""Whether a message states something and asks for nothing. The rules are of English.

They would rather miss a statement than take a request for one.
"""

from __future__ import annotations

from mindful.conversation.expected import MONTHS, WEEKDAYS, sentences
from mindful.conversation.spelling import spelled
from mindful.core.pattern import CAPITAL, IGNORECASE, Short, linear

_LONGEST = 300
"""Characters of a message that is read."""
_FEWEST = 5
"""Words of the shortest statement: what is shorter tells of a mood, or belongs to what was said before."""
_FEWEST_OF_SELF = 3
_FEWEST_NAMED = 4
"""Words of the shortest statement about a person or a thing: "Lena works at Bosch.", "The van takes diesel."."""
_OPENS = (
    r"^\W*(?:(?:hi|hello|hey|ok|okay|so|well|and|but|oh|now|also|fyi|btw|by the way|lol|right|"
    r"good (?:morning|afternoon|evening|news)|"
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
_ASKED = "How|When|Where|Why|What|Who|Which|Is|Are|Was|Were|Do|Does|Did|Can|Could|Will|Would|Should|Has|Have|Had|If"
_NAMED = rf"(?!(?:{_ASKED})\b)(?:{CAPITAL}[\w'-]+(?:,? (?:and )?)){{1,4}}{_VERB}\b"
_TELLS_OF = Short(
    r"^(?!(?:It|That|This|There|These|Those|He|She|They|We|I|My|Our|The|Everything|Nothing|Something|Everybody|Nobody|"
    rf"All|Some|Not|No|Great|Good|Nice|Bad|Fine|Hard)\b){_NAMED}",
    _LONGEST,
)
_TELLS_OF_THING = Short(
    r"^(?:my|our|the|his|her|their) \w+ (?!\w+ (?:great|good|fine|nice|bad|cool)\b)", _LONGEST, IGNORECASE
)
_TELLS_OF_SELF = Short(
    r"^\W*(?:(?:i|we) (?:also |really |still |now |usually |never |always )?"
    r"(?:hate|like|love|adore|dislike|live|work|drive|have|own|prefer|play|speak|study|teach|eat|drink|collect|ride|wear|grow|"
    r"keep|smoke|commute)|(?:i|we) (?:can't|cannot|don't) (?:eat|drink|like|drive|smoke|stand)) "
    r"(?!(?:it|that|this|you|them|to|a (?:question|problem|headache|cold|idea)|no idea|one|some|questions?)\b)\w",
    _LONGEST,
    IGNORECASE,
)
"""A lasting fact about the user: "I drive a Volvo."."""
_NO_NOUN = (
    r"(?!(?:write|tell|give|make|show|list|explain|describe|translate|summari[sz]e|help|find|compare|create|generate|"
    r"suggest|recommend|define|name|calculate|solve|fix|check|correct|rewrite|rephrase|improve|convert|draw|draft|compose|"
    r"plan|design|imagine|pretend|act|assume|say|repeat|continue|stop|set|put|add|remove|delete|change|count|sort|choose|"
    r"pick|answer|respond|reply|remind|let|try|consider|provide|read|analy[sz]e|classify|extract|identify|discuss|outline|"
    r"prove|play|sing|guess|look|see|use|take|go|come|turn|keep|call|send|open|close|run|start|ask|think|thanks|thank|can|"
    r"could|would|should|will|do|does|did|is|are|was|were|am|have|has|may|must|if|any|not|how|when|where|great|good|nice|"
    r"bad|fine|sure|whatever|everything|nothing|something|all|some|these|those)\b)"
)
"""No imperative, and no word that questions and moods begin with."""
_PERSONAL = (
    r"(?=.*(?:\d|\b(?:i|me|my|mine|we|us|our|ours|today|tomorrow|tonight|yesterday|now|again|weeks? (?:ago|back)|"
    rf"(?:this|last|next|every) \w|{WEEKDAYS}|{MONTHS})\b))(?!.*\b(?:how|which|what|who|whose|whom)\b)"
)
"""A sentence about the user's life, by a person, a number or a time in it, that asks nothing."""
_SUBJECTLESS = _PERSONAL + (
    r"(?:just |finally |already |only |been )*(?:saving|learning|thinking|planning|going|working|moving|having|getting|"
    r"meeting|seeing|starting|met|got(?! any)|went|did|had|sold|bought|found|lost|left|took|saw|stuck|paid|made|gave|"
    r"came|broke|won|(?!(?:need|feed|bleed|speed|embed|proceed|indeed)\b)\w{3,}ed|"
    r"can't (?:have|eat|drink|stand|come|swim|drive|ride)) \w"
)
"""A statement that leaves "I" out: "Sold the old car", "been learning bass", "can't have penicillin"."""
_BARE = rf"{_PERSONAL}{_NO_NOUN}[\w'-]+(?: [\w'-]+){{0,6}} " + (
    r"(?:is|are|was|were|has|had|got|went|came|left|moved|\w{3,}ed)\b"
)
"""A statement about a noun without an article: "dentist is on the 19th", "bike fund is up to 2600"."""
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
        (_SUBJECTLESS, IGNORECASE),
        (_BARE, IGNORECASE),
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
    r"'d like|wonder(?:ing)?|wish|let's|let us|should|how (?:to|many|much|old|far)|what|why|who|whom|whose|which|"
    r"forgot(?:ten)?|(?:not|\w+n't) (?:know|remember|recall|sure|understand)|looking for|trying to|curious)\b",
    IGNORECASE,
)
_REQUESTS = linear(
    r"[,;] (?:and |then |so )*(?!(?:i|we|he|she|they|for|with|to|of|like|as|but|because|since|when|if|and|or|in|on|at|"
    r"by|from|about|is|was)\b)[a-z]+ (?:it|them|me|us|my|this|that|these)\b",
    IGNORECASE,
)
"""An imperative and its object: "I am hungry, give me a recipe"."""
_UNFINISHED = linear(r"\b(?:is|are|was|were|be|the|an?|of|by|for|that|called)$", IGNORECASE)
"""The end of a sentence that another is to finish: "the capital of France is"."""
_TEXT = linear(r"\n|(?<!\d):|:(?!\d)")
"""What comes before a text that the message is about, but not within a time of day."""
_WORD = linear(r"\w+")


def declares(message: str) -> bool:
    """Return whether each sentence of a message has the form of a statement. A relative clause is part of one."""
    plain = spelled(message.replace("\u2019", "'"))
    if len(plain) > _LONGEST or _ASKS.search(_RELATIVE.sub(" ", plain)) or _REQUESTS.search(plain):
        return False
    if _UNFINISHED.search(plain.rstrip()):
        return False
    told = [sentence for sentence in sentences(plain) if not _GREETS.search(sentence)]
    heads = [_RELATIVE.split(sentence)[0] for sentence in told]
    return bool(told) and all(any(form.search(head) for form in _STATES) for head in heads)


def states(message: str) -> bool:
    """Return whether a message only tells something: "My cat is called Misha." tells, "I need a recipe." asks."""
    is_of_one = _TELLS_OF.search(message) or _TELLS_OF_THING.search(message)
    fewest = _FEWEST_NAMED if is_of_one else _FEWEST_OF_SELF if _TELLS_OF_SELF.search(message) else _FEWEST
    return len(_WORD.findall(message)) >= fewest and not _TEXT.search(message) and declares(message)
