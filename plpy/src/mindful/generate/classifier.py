"""Classifiers trained on a tenant's own labeled rows, over the embeddings of their texts."""

from __future__ import annotations

import hashlib
from collections import Counter, OrderedDict
from collections.abc import Sequence
from typing import Any, NamedTuple

from mindful.core.entry import writing_function
from mindful.core.errors import InvalidParameterError, NotReadyError, NullValueError, UndefinedObjectError
from mindful.core.ports import Database
from mindful.generate.call import BLANK, check_length
from mindful.models import runtime

_FEWEST, _MOST = 10, 10_000
"""Rows to train on."""
_MOST_BYTES = 1 << 26
"""Bytes of their texts and labels, which this process holds. 10000 texts of 6 KB fit."""
_MOST_LABELS = 255
_LOADED_MOST = 4
_loaded: OrderedDict[tuple[object, ...], _Trained] = OrderedDict()
"""Classifiers that this backend has fitted, by tenant, name and version. It is a cache."""

Matrix = Any


class _Trained(NamedTuple):
    """A classifier that is ready for use."""

    embedder: str
    labels: list[str]
    predict: Any
    """From a matrix of embeddings to a matrix of probabilities, a column per label."""

    def chosen(self, labels: Sequence[str]) -> list[str]:
        """Return the wished labels. Error 22023: the classifier does not have one of them."""
        for label in labels:
            if label not in self.labels:
                raise InvalidParameterError(
                    f'the classifier has no label "{label}"', f"It has {', '.join(self.labels)}."
                )
        return list(labels)

    def probabilities(self, db: Database, texts: Sequence[str], labels: Sequence[str]) -> list[list[float]]:
        """Return the probability of each of the labels for each text."""
        import numpy as np

        columns = [self.labels.index(label) for label in labels]
        found = self.predict(_embedded(db, self.embedder, texts))[:, columns]
        rows: list[list[float]] = (found / np.maximum(found.sum(1, keepdims=True), 1e-12)).tolist()
        return rows


@writing_function
def classifier_train(
    db: Database, name: str | None, query: str | None, embedder: str | None
) -> dict[str, Any]:
    """Fit nearest neighbors and logistic regression to labeled rows, and keep the one that is right more often."""
    from mindful.generate import fit

    if name is None or query is None:
        raise NullValueError(
            "name or query is null", "Pass a name and a query that returns content and label."
        )
    db.rows("select _mindful.short_argument('name', $1)", ("text",), (name,))
    texts, labels = _labeled(db, query)
    spec = runtime.find(db, "embedder", embedder)
    names = sorted(set(labels))
    matrix = _embedded(db, spec.name, texts)
    places = {label: at for at, label in enumerate(names)}
    chosen = fit.chosen(matrix, [places[label] for label in labels], len(names), db.check)
    row = {
        "name": name,
        "embedder": spec.name,
        "embedder_sha256": spec.sha256,
        "labels": names,
        "method": chosen.method,
        "strength": chosen.strength,
        "examples": len(texts),
        "accuracy": chosen.accuracy,
        "accuracy_neighbors": chosen.accuracy_neighbors,
        "accuracy_logistic": chosen.accuracy_logistic,
        "accuracy_largest": max(Counter(labels).values()) / len(labels),
    }
    db.rows(
        "select _mindful.classifier_write($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)",
        ("text", "text", "text", "text[]", "text", *["real"] * 5, "text[]", "text[]", "bytea", "integer"),
        [value for key, value in row.items() if key != "examples"]
        + [labels, [_hash(text) for text in texts], matrix.tobytes(), matrix.shape[1]],
    )
    return row


def trained_classifier(db: Database, name: str) -> _Trained:
    """Return a classifier of the tenant. Error 42704: there is none of the name; 55000: its embedder has changed."""
    import numpy as np

    from mindful.generate import fit

    rows = db.rows("select c.* from _mindful.classifier_find($1) c", ("text",), (name,))
    if not rows:
        raise UndefinedObjectError(
            f'there is no classifier "{name}"', "Train it with mindful.classifier_train."
        )
    row = rows[0]
    if runtime.find(db, "embedder", row["embedder"]).sha256 != row["embedder_sha256"]:
        raise NotReadyError(f'the embedder of classifier "{name}" has changed', "Train the classifier again.")
    key = (row["tenant"], name, row["version"], row["examples"])
    if key not in _loaded:
        found = db.rows(
            "select e.label, e.embedding from _mindful.classifier_examples($1) e", ("text",), (name,)
        )
        labels = sorted({example["label"] for example in found})
        if len(labels) < 2:
            raise NotReadyError(
                f'classifier "{name}" has examples of fewer than two labels left',
                "Train the classifier again.",
            )
        matrix = np.stack([np.frombuffer(example["embedding"], np.float32) for example in found])
        places = [labels.index(example["label"]) for example in found]
        predict = fit.fitted(row["method"], row["strength"], matrix, places, len(labels), db.check)
        _loaded[key] = _Trained(row["embedder"], labels, predict)
        if len(_loaded) > _LOADED_MOST:
            _loaded.popitem(last=False)
    _loaded.move_to_end(key)
    return _loaded[key]


def _labeled(db: Database, query: str) -> tuple[list[str], list[str]]:
    """Run the query as the caller, and return its texts and labels. Rows with a NULL or an empty text are left out."""
    check_length("query", query)
    # The running sum ends the query at the row that is too much.
    rows = db.rows(
        f"""select r.content, r.label
            from (
                select q.content::text as content, q.label::text as label,
                    pg_catalog.sum(pg_catalog.octet_length(q.content::text) + pg_catalog.octet_length(q.label::text))
                        over (rows unbounded preceding) as bytes
                from ({query.rstrip().removesuffix(";")}
                ) q (content, label)
                where q.content is not null and q.label is not null
            ) r
            where r.bytes <= {_MOST_BYTES} or _mindful.raise('54000',
                pg_catalog.format('the first rows of the query have %s bytes, more than {_MOST_BYTES}', r.bytes),
                'Return fewer rows, or shorter texts.')
            limit {_MOST + 1}"""
    )
    rows = [row for row in rows if row["content"].strip(BLANK)]
    if not _FEWEST <= len(rows) <= _MOST:
        raise InvalidParameterError(
            f"the query returns {len(rows)} labeled rows", f"Label from {_FEWEST} to {_MOST} rows."
        )
    for row in rows:
        check_length("content", row["content"])
        check_length("label", row["label"])
    labels = [" ".join(row["label"].split()) for row in rows]
    counts = Counter(labels)
    if not 2 <= len(counts) <= _MOST_LABELS or "" in counts:
        raise InvalidParameterError(
            f"the query returns {len(counts)} different labels",
            f"Use 2 to {_MOST_LABELS} labels that are not empty.",
        )
    return [row["content"] for row in rows], labels


def _embedded(db: Database, embedder: str, texts: Sequence[str]) -> Matrix:
    """Return the embeddings of texts, a row each. Those of memories are read, the others computed."""
    import numpy as np

    hashes = [_hash(text) for text in texts]
    rows = db.rows(
        "select e.content_hash, e.embedding from _mindful.embeddings_kept($1, $2) e",
        ("text", "text[]"),
        (embedder, hashes),
    )
    kept = {row["content_hash"]: np.fromstring(row["embedding"][1:-1], np.float32, sep=",") for row in rows}
    missing = [text for text, digest in zip(texts, hashes, strict=True) if digest not in kept]
    made = iter(runtime.embed(db, embedder, missing) if missing else ())
    return np.array([kept[digest] if digest in kept else next(made) for digest in hashes], np.float32)


def _hash(text: str) -> str:
    """Hash a text as the column content_hash of memory does."""
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()
