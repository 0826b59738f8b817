"""Classifiers from one's own labeled rows."""

import psycopg
import pytest
from psycopg.types.json import Jsonb
from support import Connect, fails, one

THINGS = {
    "animal": ["dog", "cat", "horse", "cow", "sheep", "lion", "tiger", "bear", "wolf", "fox"],
    "food": ["bread", "cheese", "rice", "soup", "pasta", "salad", "cake", "butter", "jam", "pizza"],
}
QUERY = "select content, label from public.example"


@pytest.fixture
def examples(ana: psycopg.Connection, db: psycopg.Connection) -> psycopg.Connection:
    if one(db, "select to_regclass('public.example') is not null"):  # another test that shares it made it
        return ana
    db.execute("create table public.example (content text, label text)")
    db.execute("alter table public.example owner to current_user")
    db.execute("grant select on public.example to public")
    with db.cursor() as cursor:
        cursor.executemany(
            "insert into public.example values (%s, %s)",
            [(f"There was a {word}.", label) for label, words in THINGS.items() for word in words[:8]],
        )
    return ana


@pytest.mark.shares
def test_a_trained_classifier_knows_what_it_has_not_seen(examples: psycopg.Connection) -> None:
    row = examples.execute("select * from classifier_train('things', %s)", (QUERY,)).fetchone()
    assert row is not None
    assert row[:3] == ("things", "all-minilm-l6-v2", ["animal", "food"])
    assert row[4] == 16
    assert row[5] == max(row[6:8]) >= 0.9
    assert row[8] == 0.5
    asked = {f"There was a {word}.": label for label, words in THINGS.items() for word in words[8:]}
    found = examples.execute(
        "select label, probability, probabilities from unnest(llm_classify_many(%s, classifier => 'things'))",
        (list(asked),),
    ).fetchall()
    assert [row[0] for row in found] == list(asked.values())
    assert all(0.5 < row[1] < 1 and sum(row[2].values()) == pytest.approx(1, abs=1e-4) for row in found)
    one_text, label = next(iter(asked.items()))
    assert one(examples, "select llm_classify(%s, classifier => 'things')", one_text) == label
    assert one(examples, "select llm_classify(null, classifier => 'things')") is None
    rows = examples.execute(
        "select number, (result).label, error ->> 'sqlstate'"
        " from llm_classify_many(%s, null, classifier => 'things', on_error => 'null')",
        ([one_text, " ", None],),
    ).fetchall()
    assert rows == [(1, label, None), (2, None, "22023"), (3, None, None)]
    assert one(examples, "select llm_classify(%s, '{food}', classifier => 'things')", one_text) == "food"


@pytest.mark.parametrize("method", ["neighbors", "logistic"])
def test_both_methods_tell_things_apart(method: str) -> None:
    import numpy as np
    from mindful.generate.fit import fitted

    rng = np.random.default_rng(1)
    centers = rng.normal(size=(3, 24))
    places = np.arange(90) % 3
    rows = (centers[places] + rng.normal(scale=0.8, size=(90, 24))).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    found = fitted(method, 5 if method == "neighbors" else 1e-3, rows[:60], places[:60], 3, lambda: None)(
        rows[60:]
    )
    assert np.allclose(found.sum(1), 1, atol=1e-4)
    assert (found.argmax(1) == places[60:]).mean() > 0.9


def test_the_query_runs_as_the_caller(examples: psycopg.Connection, db: psycopg.Connection) -> None:
    db.execute("revoke select on public.example from public")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        examples.execute("select classifier_train('things', %s)", (QUERY,))


@pytest.mark.parametrize(
    ("query", "sqlstate"),
    [
        (None, "22004"),
        ("select 1", "42P10"),
        ("select content, label from public.example limit 5", "22023"),
        ("select content, 'a' from public.example", "22023"),
        ("select repeat('a', 262145), label from public.example", "54000"),
        ("select content, repeat(label, 262145) from public.example", "54000"),
        ("delete from public.example returning content, label", "42601"),
        (
            "select content, label from public.example) q (content, label); drop table public.example; select (1",
            "42601",
        ),
    ],
)
@pytest.mark.shares
def test_a_query_that_does_not_serve_is_refused(
    examples: psycopg.Connection, query: str | None, sqlstate: str
) -> None:
    with pytest.raises(psycopg.Error) as raised:
        examples.execute("select classifier_train('things', %s)", (query,))
    assert raised.value.sqlstate == sqlstate


@pytest.mark.shares
def test_a_table_without_its_schema_is_not_found(examples: psycopg.Connection) -> None:
    with fails("42P01", "public"):
        examples.execute("select classifier_train('things', 'select content, label from example')")


@pytest.mark.shares
def test_texts_are_not_read_beyond_what_a_connection_may_hold(examples: psycopg.Connection) -> None:
    # 256 of these texts are the limit, and row 501 divides by zero.
    rows = "select repeat('tea ', 65536), (1 / (501 - i))::text from generate_series(1, 10000) i"
    with fails("54000", "shorter texts"):
        examples.execute("select classifier_train('things', %s)", (rows,))


@pytest.mark.shares
def test_a_classifier_is_its_tenants(examples: psycopg.Connection, connect: Connect) -> None:
    examples.execute("select classifier_train('things', %s)", (QUERY,))
    bob = connect("bob")
    with fails("42704"):
        bob.execute("select llm_classify('a dog', classifier => 'things')")
    bob.execute(
        "select classifier_train('things', %s)", ("select content, upper(label) from public.example",)
    )
    assert one(bob, "select llm_classify('a dog', classifier => 'things')") == "ANIMAL"
    assert one(examples, "select llm_classify('a dog', classifier => 'things')") == "animal"
    assert one(bob, "select classifier_delete('things')") is True
    assert one(bob, "select classifier_delete('things')") is False
    assert one(examples, "select count(*) from classifier_list()") == 1


def test_training_again_replaces_and_other_connections_notice(
    examples: psycopg.Connection, connect: Connect
) -> None:
    examples.execute("select classifier_train('things', %s)", (QUERY,))
    other = connect("ana")
    assert one(other, "select llm_classify('a dog', classifier => 'things')") == "animal"
    examples.execute(
        "select classifier_train('things', %s)", ("select content, upper(label) from public.example",)
    )
    assert one(other, "select llm_classify('a dog', classifier => 'things')") == "ANIMAL"


def test_forgetting_a_text_takes_its_example(examples: psycopg.Connection) -> None:
    memory = one(examples, "select memory_insert('There was a dog.')")
    examples.execute("select classifier_train('things', %s)", (QUERY,))
    assert one(examples, "select examples from classifier_list()") == 16
    examples.execute("select count(*) from memory_forget(ids => %s)", ([memory],))
    assert one(examples, "select examples from classifier_list()") == 15
    assert one(examples, "select llm_classify('There was a horse.', classifier => 'things')") == "animal"


@pytest.mark.parametrize(
    "arguments",
    [
        "instruction => 'x'",
        "model => 'smollm2-135m-instruct'",
        "examples => '[]'",
        "descriptions => '{}'",
        "labels => '{plant}'",
    ],
)
@pytest.mark.shares
def test_arguments_that_do_not_go_with_a_classifier_are_refused(
    examples: psycopg.Connection, arguments: str
) -> None:
    examples.execute("select classifier_train('things', %s)", (QUERY,))
    with fails("22023"):
        examples.execute(f"select llm_classify('a dog', classifier => 'things', {arguments})".encode())


@pytest.mark.shares
def test_descriptions_and_examples_change_what_the_model_reads(ana: psycopg.Connection) -> None:
    query = """select (probabilities ->> 'A')::float
        from unnest(llm_classify_many('{I love snow.}', '{A,B}', subtract_prior => false,
            descriptions => %s, examples => %s))"""
    examples = [{"content": f"I love {word}.", "label": "B"} for word in ("tea", "cats", "rain", "music")]
    bare = one(ana, query, None, None)
    assert one(ana, query, Jsonb({"A": "The writer loves something."}), None) != bare
    assert one(ana, query, None, Jsonb(examples)) < bare


@pytest.mark.parametrize(
    "arguments",
    [
        "descriptions => '[]'",
        'descriptions => \'{"c": "x"}\'',
        "descriptions => '{\"a\": 1}'",
        "examples => '{}'",
        'examples => \'[{"content": "x"}]\'',
        'examples => \'[{"content": "x", "label": "c"}]\'',
    ],
)
@pytest.mark.shares
def test_bad_descriptions_and_examples_are_refused(ana: psycopg.Connection, arguments: str) -> None:
    with fails("22023"):
        ana.execute(f"select llm_classify('x', '{{a,b}}', {arguments})".encode())
