"""Texts that are made to cost much: what runs long in a parser, a regular expression or a tokenizer."""

from __future__ import annotations

import base64
import random
from collections.abc import Mapping
from functools import cache

_UNITS = {
    "the": " the",
    "and": "a and ",
    "so": "so, ",
    "name": "Alpha and ",
    "initials": "A.",
    "because": " because I",
    "dash": " - ",
    "spaces": " ",
    "lines": "\n",
    "tabs": "\t",
    "carriage returns": "\r",
    "letters": "a",
    "capitals": "A",
    "digits": "1",
    "numbers": "1 ",
    "phones": "1-",
    "words": "word ",
    "emails": "a@",
    "at": "@",
    "dots": ".",
    "dotted": "a.",
    "addresses": "1.",
    "quotes": '"',
    "apostrophes": "'",
    "commas": ",",
    "hyphens": "a-",
    "underscores": "_",
    "slashes": "/",
    "paths": "a/",
    "brackets": "(",
    "square brackets": "[",
    "braces": "{",
    "angles": "<",
    "tags": "<|",
    "links": "[a](",
    "stars": "*",
    "emphasis": "*a ",
    "backticks": "`",
    "hashes": "#",
    "quotations": ">",
    "pipes": "|",
    "ampersands": "&#",
    "backslashes": "\\",
    "questions": "why? ",
    "sentences": "I love tea. ",
    "marks": "\u0301\u0316",
    "mixed": "e\u0301\u0416\u4e2d\u3042\U0001f600 ",
    "ideographs": "\u4e2d",
    "emoji": "\U0001f468\u200d",
    "capital dots": "\u0130",
    "passwords": "password ",
    "urls": "http://a.",
    "now": "now ",
    "names": "Anna B ",
    "facts": "and I like tea ",
}


@cache
def texts(size: int) -> Mapping[str, str]:
    """Return hostile texts of at most so many bytes of UTF-8, by what they are made of."""
    found = {name: unit * (size // len(unit.encode())) for name, unit in _UNITS.items()}
    found |= {
        f"love {name}": ("I love " + unit * (size // len(unit.encode())))[: size - 8]
        for name, unit in _UNITS.items()
        if name
        in ("the", "and", "so", "name", "because", "spaces", "lines", "letters", "now", "commas", "brackets")
    }
    chance = random.Random(7)
    found["base64"] = base64.b64encode(chance.randbytes(size * 3 // 4)).decode()[:size]
    found["noise"] = "".join(chance.choices("aA1 .,'\"\n-@:/(", k=size))
    found["nested"] = "(" * (size // 2) + ")" * (size // 2)
    return found
