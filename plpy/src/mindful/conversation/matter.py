"""Whether a question is about the user's own matters, which only the user and their memories can know.

The rules are of English. The measurements behind the constants are in docs/decisions.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from mindful.conversation.asked import asks_who_is
from mindful.conversation.expected import MONTHS, WEEKDAYS
from mindful.core.pattern import CAPITAL, IGNORECASE, Linear, Short, linear
from mindful.core.ports import Vector
from mindful.core.vector import cosine
from mindful.models.runtime import FoundEmbedder

_MANNER = r"\bhow(?:'s| is| are| was| were) (?:my|our) [^?]{1,60}(?:ed|spelt|built|paid|made|kept)\W*$"
"""How something of the user's is named, insured or was repaired."""
_ASKS = linear(
    r"\b(?:who|whose|whom|when|where|which|what|why (?:did|was|were|had)|"
    r"how (?:many|much|long|old|far|tall|big|often|deep|high|wide|heavy|large|fast|late|early|cold|warm|hot|"
    rf"(?:is|are|was|were) [^?]{{1,60}} (?:named|called|spel(?:led|t))))\b|{_MANNER}",
    IGNORECASE,
)
_TITLE = r"(?:(?:Mr|Mrs|Ms|Dr|Prof)\.? )?"
_NAME = rf"{CAPITAL}[a-z\u00df-\u024f]+"
_ASKS_OF = linear(
    rf"\b(?:[Ww]hy (?:is|does|has)|[Hh]ow (?:did|was)) {_TITLE}{_NAME}|"
    rf"\b[Hh]ow (?:do|does) (?:{_TITLE}{_NAME}(?: (?:and )?{_NAME})?|(?:my|our) \w+)(?: usually| normally| now)? "
    r"(?:get|go|come|travel|commute|like|drink|spell)\b"
)
"""Other questions for a reason or a manner ask for advice, or for what is generally known."""
_SO = r"^\W*(?:(?i:and|so|but|ok|okay|well|then)\W+)*"
_MANNER_OR_REASON = linear(
    rf"{_SO}(?:why|how (?:do|does|did|can|could|should)|how come)\b",
    IGNORECASE,
)
_DUTY = linear(
    rf"{_SO}(?:(?:do|does|did)(?:n['\u2019]t)? (?:i|we|my \w+|our \w+) (?:still |also |really )?"
    r"(?:need|have|owe)|(?:should|must|may|can) (?:i|we|my \w+|our \w+))\b",
    IGNORECASE,
)
"""Questions for a manner, a reason or a duty. Most are for advice; those about a certain thing may be for a memory."""
_LONGEST = 300
"""Characters of a question that is read as one about a kind of things."""
_FEWEST, _MOST = 2, 10
"""Words of a question without a verb."""
_REPLIES = linear(
    r"^\W*(?:any|anything|another|more|really|ok|okay|sure|ready|next|else|same|yes|no|not|good|nice|great|thanks|hello|and|"
    r"but|or|so|feeling|wanna|want|makes?|translate|summari[sz]e|explain|tell|write|give|show)\b|"
    r"\b(?:recipes?|synonyms?|translations?|examples?|tips?|ideas?|jokes?)\b",
    IGNORECASE,
)
"""Replies, wishes and tasks: "Another example?"."""
_CLAUSE = linear(
    r"\b(?:is|are|am|was|were|be|do|does|did|has|have|had|can|could|will|would|shall|should|may|might|must|i|you|we|they|"
    r"he|she|it|let|how|why|if|about)\b|n['\u2019]t\b",
    IGNORECASE,
)
_DONE = linear(r"\bdid (?:i|we)\b|\bdo for (?:a living|work)\b", IGNORECASE)
"""Past deeds and the work of the user, which only the user and their memories can know."""
_MINE = linear(
    r"\b(?:what|who|where|when|which \w+|how (?:old|tall|long|big|far|much|many|heavy|deep|high))"
    r"(?:'s| is| are| was| were) (?:the \w+ of )?(?:my|our)\b|\bhow (?:old|tall|heavy) (?:am i|are we)\b|"
    rf"{_MANNER}|"
    r"\b(?:what(?:'s| is)) the (?:[\w'\u2019-]+ ){0,2}(?:password|code|pin|combination|phone number)\b|"
    r"\b(?:who|whose|whom|when|where|(?:which|what) \w+|how (?:much|many)\b[^?]{0,40}) (?:do|does|did|have|has|am|are) "
    r"(?:i|we|my \w+|our \w+)\b(?! (?:need|have to|get|find|make|use|put|begin|start|say|write|know)\b)|"
    r"\bwhat (?:do|does|did|am|have|has) (?:i|we|my \w+|our \w+) "
    r"(?:do for|eat|drink|drive|own|like|love|hate|collect|play|study|teach|"
    r"earn|pay|weigh|allergic|order|ordered|buy|bought|promise|promised|decide|decided|plan|planned)\b",
    IGNORECASE,
)
"""Questions for a fact of the user's own, in a form that requests for advice do not have."""
_WHETHER = linear(
    r"^\W*(?:(?:do|does|did) (?:i|we|my \w+|our \w+) (?:ever |still |already |really |also )?"
    r"(?:have|own|live|work|like|love|hate|eat|drink|smoke|drive|play|speak|study|teach|collect|pay|keep|prefer)"
    r"(?! to\b)\b|(?:have|has) (?:i|we|my \w+|our \w+)|(?:am i|are we) (?:a|an|the|in|on|at|from|married|single|"
    r"divorced|engaged|related|allergic|vegetarian|vegan|retired|employed|unemployed|insured|diabetic|pregnant))\b",
    IGNORECASE,
)
_WHETHER_OTHERS = linear(
    r"^\W*(?:is|are|was|were|do|does|did|has|have|had|can|could|will|would)(?:n['\u2019]t)? "
    r"(?!(?:you|it|there|this|that|these|those|they|he|she|i|we|my|our|an?|anyone|anybody|someone|somebody|not)\b)",
    IGNORECASE,
)
"""Questions for a yes or no about the user's own matters by their form, and about those of others."""
_NAMES = linear(
    rf"(?:\b([Tt]he )|(?<=[^\W.!?:] ))(?!(?i:{MONTHS}|{WEEKDAYS}|christmas|easter)\b)"
    rf"{_TITLE}{_NAME}(?:['\u2019]s\b|\b((?: {CAPITAL}\w*(?:['\u2019]s)?)+))?"
)
"""A name, with the article before it and more words of it."""
_LONG_NAME = linear(rf"(?<=[^\W.!?:] )(?!(?:Mr|Mrs|Ms|Dr|Prof)\b){CAPITAL}\w+ (?:of )?(?:the )?{CAPITAL}\w+")
"""A name of several words, such as "the Mona Lisa": users call people they know by one."""
_REFERS = linear(rf"\b(?:the|my|our|his|her|their|this|that) \w|\b{WEEKDAYS}s?\b", IGNORECASE)
"""A noun phrase for a certain thing, or a day."""
OWN = linear(r"\b(?:i|me|my|mine|we|us|our|ours)\b", IGNORECASE)
_CERTAIN = linear(
    r"\b(?:the|this|that|these|those|i|me|we|us|my|our|your|you|his|her|its|their|he|she|it|they|there|here|now|today|"
    r"tomorrow|yesterday|tonight|next|last|again|still)\b|(?<!hat)['\u2019]s? \w|\d|"
    r"\bhow (?:much|many|often|late|early)\b|"
    r"\b(?:mine|ours|yours|grandmas?|grandpas?|gran|granny|mum|mom|dad|guests|visitors|tenants|going|called|named)\b|"
    r"(?<!\ban )(?<!\ba )\b(?:password|code|pin|number|hours|address|name|birthday|breakfast|lunch|dinner|supper)\b",
    IGNORECASE,
)
"""Words of questions for a certain thing, person, time or amount."""
_STATE = r"(?:wrong|new|left|due|open|closed|free|up|on|in|for|at|to|with|about|\w+ed|\w+ing)\b"
_THING = rf"(?:an? (?:[a-z-]+ ){{0,2}}[a-z-]+|(?!{_STATE})[a-z-]+(?: [a-z-]+)?)"
_OF_A_KIND = Short(
    rf"{_SO}(?:"
    rf"(?i:what)(?:['\u2019]s| is| are) {_THING}|"
    rf"(?i:what) (?:do|does|can) (?:an? [a-z -]+|[a-z-]+s) (?:do|eat|drink|mean|need|use|consist of|look like)|"
    r"(?i:how) (?:[a-z]+ )?(?:is|are|do|does|can) (?:an? [a-z-]+|[a-z-]+s|(?=[a-z]+ made\b))[a-z -]*)\W*$",
    _LONGEST,
)
"""Questions for what something is or does in general: "What is a boiler?", "How do bees make honey?"."""
_KNOWN = linear(
    rf"{_SO}who (?:invented|discovered|composed|painted|founded) (?!(?:the|my|our|this|that) [a-z])[\w -]+\W*$|"
    r"\d ?(?:divided by|multiplied by|times|plus|minus|[x*/+\u00d7\u00f7\u2212]) ?\d",
    IGNORECASE,
)
"""Questions for discoveries and sums: "Who discovered penicillin?"."""
_THEN_ASKS = linear(
    r"[,.;:!] ?(?:so |and |then )?(?:how (?:much|many|long|old|far)|what|when|which)\b", IGNORECASE
)
_NUMBER = linear(r"\d+")
_SAYS = linear(
    r"\b(?:if|paid|pay|bought|buy|sold|spent|spend|earn|earned|have|has|had|is|are|was|were|costs?|lasts?|takes?|took|starts?|"
    r"started)\b",
    IGNORECASE,
)
_BEYOND_FIGURES = linear(r"\d|\b(?:called|named?)\b", IGNORECASE)
_OWN_MATTERS = (
    *("What is my mother's name?", "When is my next appointment?", "Where did I leave my glasses?"),
    *(
        "How much do I pay for the phone contract?",
        "Who is my doctor?",
        "What did we decide about the garden?",
    ),
    *("Where does my friend Daniel work?", "When is Julia's birthday?", "What is the code of the safe?"),
    *("Which room is the workshop in?", "How old is our daughter?", "Who is responsible for the invoices?"),
    *("What did Martin say at the meeting?", "When does the new contract start?", "Where is the charger?"),
    "How many guests are coming on Saturday?",
)
_OTHER_MATTERS = (
    *("What is the capital of Spain?", "Who invented the telephone?", "When did the Roman empire fall?"),
    *("How many bones does a human have?", "What is the meaning of the word ubiquitous?"),
    *("Why do leaves turn red in autumn?", "Which country is the largest?", "Who won the world cup in 2006?"),
    *("How do I cook rice?", "What should I do when I cannot sleep?", "Can you recommend a good movie?"),
    *("How can I learn to draw?", "Tell me a story.", "How are you today?", "What can you do for me?"),
    "Write a letter of thanks.",
)
"""Questions to compare a message with: about what only the user and their memories can know, and others."""
_CLOSEST = 7
"""Closest questions of each kind whose mean similarity counts."""
_WEIGHTS = {
    "margin": 37.7,
    "closest": 2.5,
    "similarity": 3.9,
    "self": 3.2,
    "deed": 3.3,
    "form": 7.8,
    "long name": -2.2,
    "person": 1.5,
}
"""A logistic regression of `make bench-matter`, on what `_signs` returns."""
_BIAS = -5.3
_LEAST = -2.3
"""Least log-odds, of a probability of 9%: an invented answer about the user's matters is the worse mistake."""
_LEAST_OF_MANNER = 0.5
"""The same for a question for a manner, a reason or a duty. "How do I clean my oven?" asks for advice."""
ABOUT = 0.45
"""Cosine similarity from which a memory is about the things of the question."""
BEARS = 0.25
"""Cosine similarity below which a memory has nothing to do with the message, even if it shares a word with it."""
_WORD = linear(r"\w+")
_examples: dict[tuple[str, str], list[Vector]] = {}
"""Embeddings of the questions, by the embedder's name and checksum."""


class Common(NamedTuple):
    """What memories have in common with a question."""

    similarity: float = 0.0
    """The greatest of a memory about the same thing."""
    closest: float = 0.0
    """The greatest of any memory."""
    is_named: bool = False
    """Whether a memory has a name of the question."""


def asks(question: str) -> bool:
    """Return whether a question asks for a fact."""
    return any(form.search(question) for form in (_ASKS, _ASKS_OF)) or _is_phrase(question)


def may_ask(question: str, is_named: bool) -> bool:
    """Return whether a question for a manner or a reason is about a certain thing, of which memories may tell."""
    return _is_of_certain(_MANNER_OR_REASON, question, is_named)


def _is_of_certain(form: Linear, question: str, is_named: bool) -> bool:
    """Return whether a question of a form is about a certain thing or day, or has a name that a memory has."""
    return (is_named or _REFERS.search(question) is not None) and form.search(question) is not None


def _is_phrase(question: str) -> bool:
    """Return whether a question has no verb: "Plumber's number?"."""
    if not question.rstrip().endswith("?") or any(form.search(question) for form in (_CLAUSE, _REPLIES)):
        return False
    return _FEWEST <= len(_WORD.findall(question)) <= _MOST


def asks_whether(question: str, is_named: bool = False) -> bool:
    """Return whether a question may ask for a yes or no about the user's own matters."""
    is_by_form = any(form.search(question) for form in (_WHETHER, _WHETHER_OTHERS))
    return is_by_form or _is_of_certain(_DUTY, question, is_named)


def is_general(question: str) -> bool:
    """Return whether a question is about a kind of things, not about one that memories tell of."""
    if _KNOWN.search(question) or _has_its_figures(question):
        return True
    is_certain = any(form.search(question) for form in (_CERTAIN, _NAMES))
    return not is_certain and _OF_A_KIND.search(question) is not None


def _has_its_figures(question: str) -> bool:
    """Return whether a question follows the figures that it is about: "I paid 45 and 120, how much is that?"."""
    asked = _THEN_ASKS.search(question)
    if asked is None:
        return False
    before, after = question[: asked.start()], question[asked.start() :]
    has_figures = len(_NUMBER.findall(before)) > 1 and _SAYS.search(before) is not None
    return has_figures and _BEYOND_FIGURES.search(after) is None


def is_own(embedder: FoundEmbedder, question: str, common: Common) -> bool:
    """Return whether a question is about the user's own matters."""
    is_by_form = _WHETHER.search(question) is not None or (asks_who_is(question) and common.is_named)
    is_of_manner = any(form.search(question) for form in (_MANNER_OR_REASON, _DUTY)) and not _ASKS_OF.search(
        question
    )
    least = _LEAST_OF_MANNER if is_of_manner else _LEAST
    return is_by_form or _log_odds(_signs(embedder, question, common)) >= least


def _log_odds(signs: Mapping[str, float]) -> float:
    return _BIAS + sum(_WEIGHTS[name] * value for name, value in signs.items())


def _signs(embedder: FoundEmbedder, question: str, common: Common) -> dict[str, float]:
    """Return what tells whether a question is about the user's own matters."""
    return {
        "margin": _margin(embedder, question),
        "closest": common.closest,
        "similarity": common.similarity,
        "self": OWN.search(question) is not None,
        "deed": _DONE.search(question) is not None,
        "form": _MINE.search(question) is not None,
        "long name": _LONG_NAME.search(question) is not None,
        # Users call people they know by one name.
        "person": any(not article and not more for article, more in _NAMES.findall(question)),
    }


def _margin(embedder: FoundEmbedder, question: str) -> float:
    """Return by how much a message is closer to questions about one's own matters than to others."""
    own = tuple(embedder.embed([question])[0])  # embedded for its similarities already
    key = embedder.name, embedder.sha256
    if key not in _examples:
        _examples[key] = [*map(tuple, embedder.embed([*_OWN_MATTERS, *_OTHER_MATTERS]))]
    near = [cosine(own, one) for one in _examples[key]]
    kinds = near[: len(_OWN_MATTERS)], near[len(_OWN_MATTERS) :]
    first, second = (sum(sorted(kind)[-_CLOSEST:]) / _CLOSEST for kind in kinds)
    return first - second
