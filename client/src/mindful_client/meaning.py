"""What the figures of an answer mean, in a sentence each."""

from __future__ import annotations

CONFIDENCE = "Confidence is the mean probability of the tokens: it ranks answers and promises nothing."
_PLACES = {
    "answer": "it reaches the threshold",
    "flag": "it is below the threshold, or none is certified",
    "abstain": "the answer was withheld",
}


def probability_meaning(probability: float, action: str | None) -> str:
    """Return what the probability of an answer promises."""
    if action == "uncalibrated":
        return (
            "Such answers are not calibrated yet: the figures only rank them. Label some with mindful label."
        )
    place = _PLACES.get(action or "")
    return f"Of 100 answers with {probability:.0%}, about {100 * probability:.0f} are right" + (
        f"; {place}." if place else "."
    )
