"""Synthetic memories of many tenants, loaded as a dump is: by COPY, with the triggers off.

Sizes of tenants and words follow Zipf's law; texts are as long as turns of a conversation; embeddings lie in clusters.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import psycopg
from numpy.typing import NDArray
from psycopg import sql

EMBEDDER = "synthetic"
TABLE = f"memory_embedding_{EMBEDDER}"
_WORDS = 50_000
_TOPICS = 500
_TURNS = 30
_CHUNK = 20_000


@dataclass(frozen=True)
class Tenant:
    """A tenant's name and the ids of its memories."""

    name: str
    first: int
    size: int


def tenants(rows: int) -> list[Tenant]:
    """Give a tenth of the rows to the first, the rest to one tenant a thousand rows, by Zipf's law."""
    count = max(rows // 1000, 2)
    weights = np.arange(2, count + 1, dtype=float) ** -0.7
    sizes = [rows // 10, *(weights / weights.sum() * (rows - rows // 10)).astype(int)]
    sizes[-1] += rows - sum(sizes)
    firsts = np.cumsum([1, *sizes])
    return [Tenant(f"t{n:05}", int(firsts[n]), int(size)) for n, size in enumerate(sizes)]


class Corpus:
    """Texts and embeddings that a seed determines."""

    def __init__(self, dims: int) -> None:
        self._rng = np.random.default_rng(7)
        self.dims = dims
        self._centres = self._rng.standard_normal((_TOPICS, dims), dtype=np.float32)
        # Consonants and vowels, so that the stemmer leaves words apart: "kodu", "tase", "nilo".
        syllables = [c + v for c in "bdfgklmnprstvz" for v in "aeiou"]
        picked = self._rng.permutation(len(syllables) ** 3)[:_WORDS]
        self._words = np.array(
            [syllables[n % 70] + syllables[n // 70 % 70] + syllables[n // 4900] + "k" for n in picked]
        )
        frequencies = 1 / np.arange(1, _WORDS + 1) ** 1.0
        self._cumulative = np.cumsum(frequencies / frequencies.sum())

    def texts(self, count: int) -> list[str]:
        """Write texts of about 20 words, 5 to 200."""
        lengths = np.clip(self._rng.lognormal(2.9, 0.6, count), 5, 200).astype(int)
        words = self._words[np.searchsorted(self._cumulative, self._rng.random(int(lengths.sum())))]
        ends = np.cumsum(lengths)
        return [" ".join(words[end - length : end]) for length, end in zip(lengths, ends, strict=True)]

    def vectors(self, count: int) -> NDArray[np.float32]:
        """Make unit vectors around topics."""
        topics = self._rng.integers(_TOPICS, size=count)
        return self.around(self._centres[topics])

    def around(self, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        """Make unit vectors near others."""
        noisy = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        noisy = noisy + self._rng.standard_normal(vectors.shape, dtype=np.float32) / np.sqrt(self.dims) * 0.8
        unit: NDArray[np.float32] = noisy / np.linalg.norm(noisy, axis=1, keepdims=True)
        return unit


class NestedCorpus(Corpus):
    """Embeddings in topics within topics, as near to each other at each size as real ones: `likeness.py` compares them.

    Each level has 8 times the topics and 0.78 of the variance, so that the local intrinsic dimension stays the same
    as the number grows. Questions are drawn alike, and have a part of their own that no memory has.
    """

    _BRANCHES = 8
    _LEVELS = 6
    _MEAN = 0.31
    _RATIO = 0.78
    _ASIDE = 0.4

    def __init__(self, dims: int) -> None:
        super().__init__(dims)
        spectrum = np.arange(1, dims + 1) ** -0.4
        self._spectrum = (spectrum / np.linalg.norm(spectrum)).astype(np.float32)
        variances = self._RATIO ** np.arange(self._LEVELS + 1)
        variances[-1] /= 1 - self._RATIO  # all levels below
        norms = np.sqrt(variances * (1 - self._MEAN) / variances.sum()).astype(np.float32)
        self._mean = self._draw(1) * np.float32(self._MEAN**0.5)
        self._nodes = [
            self._draw(self._BRANCHES**level) * norm for level, norm in enumerate(norms[:-1], start=1)
        ]
        self._alone = norms[-1]
        shares = np.arange(1, self._BRANCHES + 1) ** -0.5
        self._shares = shares / shares.sum()

    def vectors(self, count: int) -> NDArray[np.float32]:
        """Make unit vectors, each in a topic of each level."""
        made = self._mean + self._draw(count) * self._alone
        topics = np.zeros(count, dtype=int)
        for nodes in self._nodes:
            topics = topics * self._BRANCHES + self._rng.choice(self._BRANCHES, count, p=self._shares)
            made = made + nodes[topics]
        return _unit(made)

    def around(self, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        """Make as many questions as there are vectors, on any topics."""
        aside = self._draw(len(vectors)) * np.float32(self._ASIDE**0.5)
        return _unit(self.vectors(len(vectors)) + aside)

    def _draw(self, count: int) -> NDArray[np.float32]:
        return self._rng.standard_normal((count, self.dims), dtype=np.float32) * self._spectrum


def _unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    made: NDArray[np.float32] = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return made


def load(db: psycopg.Connection, made: Sequence[Tenant], corpus: Corpus, vector_type: str = "vector") -> None:
    """Fill a database with rows and their words."""
    load_rows(db, made, corpus, vector_type)
    load_words(db, made)


def load_rows(db: psycopg.Connection, made: Sequence[Tenant], corpus: Corpus, vector_type: str) -> None:
    """Fill a database with memories and embeddings, unless all are there."""
    rows = sum(tenant.size for tenant in made)
    db.execute("set row_security = off")  # as a restore has it: no trigger makes the embeddings' table
    if not _has(db, f"mindful.{TABLE}", rows):
        _fill(db, made, corpus, rows, vector_type)
    db.execute("reset row_security")


def load_words(db: psycopg.Connection, made: Sequence[Tenant]) -> None:
    """Write the memories' words, and last their counts, unless these are there."""
    db.execute("set row_security = off")
    if not _has(db, "mindful.memory_count", len(made)):
        _index(db)
    db.execute("reset row_security")


def _has(db: psycopg.Connection, table: str, rows: int) -> bool:
    if db.execute("select to_regclass(%s)", (table,)).fetchone() == (None,):
        return False
    return db.execute(f"select count(*) from {table}".encode()).fetchone() == (rows,)


def _fill(
    db: psycopg.Connection, made: Sequence[Tenant], corpus: Corpus, rows: int, vector_type: str
) -> None:
    dims = corpus.dims
    db.execute("drop extension if exists mindful cascade")
    db.execute("create extension mindful cascade")
    db.execute(
        """insert into model (name, kind, provider, source, options, sha256, dims, is_default)
           values (%s, 'embedder', 'scripted', '', jsonb_build_object('dims', %s::int, 'vector_type', %s::text),
                   '', %s, true)""",
        (EMBEDDER, dims, vector_type, dims),
    )
    db.execute("select _mindful.embedding_table_create(%s, %s)", (EMBEDDER, dims))
    db.execute("create temporary table owner (tenant text, low bigint, high bigint)")
    with db.cursor().copy("copy owner from stdin") as copy:
        for tenant in made:
            copy.write_row((tenant.name, tenant.first, tenant.first + tenant.size - 1))
    _copy(db, made, corpus, rows, ">f2" if vector_type == "halfvec" else ">f4")


def _copy(db: psycopg.Connection, made: Sequence[Tenant], corpus: Corpus, rows: int, number: str) -> None:
    """Write memories, four of five of them turns of sessions, and their embeddings."""
    db.execute("create temporary table written (id bigint, content text)")
    names = np.repeat([tenant.name for tenant in made], [tenant.size for tenant in made])
    for first in range(1, rows + 1, _CHUNK):
        count = min(_CHUNK, rows + 1 - first)
        texts = corpus.texts(count)
        db.execute("truncate written")
        with db.cursor().copy("copy written from stdin") as copy:
            copy.write("".join(f"{first + n}\t{text}\n" for n, text in enumerate(texts)))
        db.execute(_MEMORIES)
        with db.cursor().copy(
            sql.SQL("copy {} (tenant, id, content_hash, embedding) from stdin (format binary)").format(
                sql.Identifier("mindful", TABLE)
            )
        ) as copy:
            vectors = corpus.vectors(count)
            for block in _binary(names[first - 1 : first - 1 + count], first, texts, vectors, number):
                copy.write(block)


# Each session is of one tenant, as a tenant's ids follow one another.
_MEMORIES = f"""
    with row as (
        select w.id, o.tenant, w.content, w.id % 5 = 0 as fact, (w.id - o.low) / {_TURNS} as conversation,
            (w.id - o.low) % {_TURNS} + 1 as turn
        from written w join owner o on w.id between o.low and o.high
    ),
    placed as (
        select r.*, case when not r.fact then md5(r.tenant || ' ' || r.conversation)::uuid end as session_id from row r
    ),
    opened as (
        insert into session (tenant, session_id)
        select distinct tenant, session_id from placed where session_id is not null
        on conflict do nothing
    )
    insert into memory (tenant, id, kind, content, metadata, session_id, turn, role, created_at)
    overriding system value
    select p.tenant, p.id, case when p.fact then 'fact' else 'message' end, p.content,
        jsonb_build_object('topic', p.id % 20), p.session_id,
        -- Facts are left out of a session's count of turns.
        case when not p.fact then
            p.turn - (select count(*) from generate_series(p.id - p.turn + 1, p.id) n where n % 5 = 0)
        end,
        case when not p.fact then case p.turn % 2 when 0 then 'assistant' else 'user' end end,
        now() - make_interval(hours => p.id::integer % 10000)
    from placed p"""


COPY_HEAD, COPY_END = b"PGCOPY\n\xff\r\n\0" + bytes(8), b"\xff\xff"
"""What stands around the rows in COPY's binary format."""


def _binary(
    names: NDArray[np.str_], first: int, texts: Sequence[str], vectors: NDArray[np.float32], number: str
) -> Iterator[bytes]:
    """Write rows as COPY's binary format has them, which numpy does as records of one size."""
    dims = vectors.shape[1]
    row = np.dtype(
        [
            ("fields", ">i2"),
            *(("tenant_size", ">i4"), ("tenant", "S6"), ("id_size", ">i4"), ("id", ">i8")),
            *(
                ("hash_size", ">i4"),
                ("hash", "S32"),
                ("vector_size", ">i4"),
                ("dims", ">i2"),
                ("unused", ">i2"),
            ),
            ("vector", number, (dims,)),
        ]
    )
    rows = np.zeros(len(texts), row)
    rows["fields"], rows["tenant_size"], rows["tenant"] = 4, 6, names.astype("S6")
    rows["id_size"], rows["id"] = 8, np.arange(first, first + len(texts))
    rows["hash_size"], rows["hash"] = 32, [hashlib.md5(text.encode()).hexdigest() for text in texts]
    rows["vector_size"], rows["dims"], rows["vector"] = 4 + row["vector"].itemsize, dims, vectors
    yield COPY_HEAD
    yield rows.tobytes()
    yield COPY_END


def _index(db: psycopg.Connection) -> None:
    """Write the postings in the order of their index."""
    db.execute("set work_mem = '1GB'")
    db.execute("set maintenance_work_mem = '2GB'")
    db.execute("truncate memory_term, memory_count")
    db.execute(
        """insert into memory_term (tenant, lexeme, id, frequency, length)
           select m.tenant, t.lexeme, m.id, t.frequency, t.length
           from memory m cross join lateral _mindful.terms(m.content) t order by 1, 2, 3"""
    )
    db.execute(
        """insert into memory_count (tenant, memories, lexemes)
           select tenant, count(*), sum(_mindful.length(content)) from memory group by tenant"""
    )
    db.execute("vacuum analyze memory, memory_term, session")
    db.execute(sql.SQL("vacuum analyze {}").format(sql.Identifier(TABLE)))
