"""Answers of deterministic calls, kept per tenant if the setting result_cache is true."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

from mindful.core.ports import Database
from mindful.core.text import seldom
from mindful.generate.call import Call


def answer(db: Database, call: Call) -> str:
    """Generate the answer of one call, or return the kept one."""
    if not (call.is_deterministic and _enabled(db)):
        return call.answer(db)
    key = _key(call)
    kept = _kept(db, [key])
    if key in kept:
        return kept[key]
    text = call.answer(db)
    _keep(db, {key: text})
    return text


def answers(db: Database, calls: Sequence[Call]) -> list[str]:
    """Generate the answers of one generator's calls in shared batches. Kept answers are not generated again."""
    if not (calls and any(call.is_deterministic for call in calls) and _enabled(db)):
        return Call.answer_many(db, calls)
    keys = [_key(call) if call.is_deterministic else None for call in calls]
    kept = _kept(db, [key for key in keys if key is not None])
    missing = [at for at, key in enumerate(keys) if key is None or key not in kept]
    made = dict(zip(missing, Call.answer_many(db, [calls[at] for at in missing]), strict=True))
    fresh = {
        key: made[at] for at in missing if (key := keys[at]) is not None and calls[at].is_accepted(made[at])
    }
    _keep(db, fresh)
    for at, call in enumerate(calls):
        if at not in made:
            call.skip()  # else it looks cut off, and is refused
    return [made[at] if at in made else kept[str(keys[at])] for at in range(len(calls))]


def kept(
    db: Database,
    identities: Sequence[tuple[object, ...]],
    compute: Callable[[Sequence[int]], Sequence[str]],
) -> list[str]:
    """Return the results of calls by all that they depend on; those at positions that are not kept are computed."""
    if not (identities and _enabled(db)):
        return list(compute(range(len(identities)))) if identities else []
    look, keys = seldom(db.check), []
    for identity in identities:
        look()
        keys.append(_hash(identity))
    known = _kept(db, keys)
    missing = [at for at, key in enumerate(keys) if key not in known]
    made = dict(zip(missing, compute(missing), strict=True)) if missing else {}
    _keep(db, {keys[at]: result for at, result in made.items()})
    return [made[at] if at in made else known[key] for at, key in enumerate(keys)]


def _enabled(db: Database) -> bool:
    return bool(db.one("select mindful.setting_get('result_cache') = 'true' as wanted")["wanted"])


def _key(call: Call) -> str:
    return _hash(call.identity)


def _hash(identity: tuple[object, ...]) -> str:
    return hashlib.sha256(repr(identity).encode()).hexdigest()


def _kept(db: Database, keys: Sequence[str]) -> dict[str, str]:
    rows = db.rows("select k.key, k.result from _mindful.cached_results($1) k", ("text[]",), (list(keys),))
    return {row["key"]: row["result"] for row in rows}


def _keep(db: Database, results: dict[str, str]) -> None:
    if results:
        db.rows(
            "select _mindful.cached_result_insert($1, $2)",
            ("text[]", "text[]"),
            (list(results), list(results.values())),
        )
