"""Models leave the registry, and what depended on them is said."""

from __future__ import annotations

import psycopg
import pytest
from support import EMBEDDER, GENERATOR, SCRIPTED_EMBEDDER, SCRIPTED_GENERATOR, Connect, fails, one

TABLE = "select to_regclass('mindful.memory_embedding_scripted_embedder') is not null"


def test_an_embedder_goes_with_its_vectors_and_jobs_and_can_come_again(
    db: psycopg.Connection, admin: psycopg.Connection, ana: psycopg.Connection
) -> None:
    admin.execute("select model_default_set(%s, force => true)", (SCRIPTED_EMBEDDER,))
    ana.execute("select memory_insert('I love tea.')")
    assert one(db, "select count(*) from memory_embedding_scripted_embedder") == 1
    admin.execute("select model_default_set(%s, force => true)", (EMBEDDER,))
    admin.execute("select embedding_enqueue(%s)", (SCRIPTED_EMBEDDER,))
    ana.execute("""select setting_set('embedding_mode', '"async"'), memory_insert('I love coffee.')""")
    ana.execute("select embedding_enqueue(%s)", (SCRIPTED_EMBEDDER,))
    jobs = "select count(*) from embedding_job where model = 'scripted-embedder'"
    assert one(db, jobs) == 1
    admin.execute("select model_unregister(%s)", (SCRIPTED_EMBEDDER,))
    assert one(db, TABLE) is False
    assert one(db, jobs) == 0
    with fails("42704"):
        ana.execute("select llm_embed('tea', %s)", (SCRIPTED_EMBEDDER,))
    assert one(ana, "select array_agg(content) from memory_recall('tea')") == ["I love tea."]
    admin.execute(
        "select model_register(%s, 'embedder', 'scripted', '', '{\"dims\": 8}')", (SCRIPTED_EMBEDDER,)
    )
    assert one(db, "select count(*) from memory_embedding_scripted_embedder") == 0


def test_a_generators_records_stay_and_its_states_go(
    db: psycopg.Connection, admin: psycopg.Connection, ana: psycopg.Connection
) -> None:
    ana.execute("select llm_generate('Hi', %s)", (SCRIPTED_GENERATOR,))
    for model in (SCRIPTED_GENERATOR, GENERATOR):
        db.execute(
            """with s as (insert into session (tenant) values ('ana') returning session_id)
               insert into kv_state (tenant, session_id, model, first, fingerprint, tokens, state, mac)
               select 'ana', session_id, %s, 0, '', '{}', '', '' from s""",
            (model,),
        )
    admin.execute("select model_unregister(%s)", (SCRIPTED_GENERATOR,))
    assert one(db, "select array_agg(model) from kv_state") == [GENERATOR]
    assert one(ana, "select array_agg(model) from generation") == [SCRIPTED_GENERATOR]
    with fails("42704"):
        ana.execute("select llm_generate('Hi', %s)", (SCRIPTED_GENERATOR,))


def test_a_tenants_own_default_becomes_the_default_of_all(
    admin: psycopg.Connection, ana: psycopg.Connection
) -> None:
    chosen = "select name from _mindful.model_find('generator', null)"
    ana.execute("select model_default_set(%s, scope => 'user')", (SCRIPTED_GENERATOR,))
    assert one(ana, chosen) == SCRIPTED_GENERATOR
    admin.execute("select model_unregister(%s)", (SCRIPTED_GENERATOR,))
    assert one(ana, chosen) == GENERATOR


def test_a_model_that_others_need_stays(db: psycopg.Connection, admin: psycopg.Connection) -> None:
    with fails("55000", hint="model_default_set"):
        admin.execute("select model_unregister(%s)", (GENERATOR,))
    admin.execute("select model_register('second', 'generator', 'scripted', '')")
    admin.execute("select model_fallback_set(%s, 'second')", (GENERATOR,))
    with fails("55000", hint="model_fallback_set") as caught:
        admin.execute("select model_unregister('second')")
    assert GENERATOR in str(caught.value)
    admin.execute("select model_fallback_set(%s, null)", (GENERATOR,))
    db.execute("update model set base = 'second' where name = %s", (SCRIPTED_GENERATOR,))
    with fails("55000", hint="adapters") as caught:
        admin.execute("select model_unregister('second')")
    assert SCRIPTED_GENERATOR in str(caught.value)
    db.execute("update model set base = null")
    admin.execute("select model_unregister('second')")
    assert one(db, "select count(*) from model where name = 'second'") == 0


def test_a_call_that_is_refused_waits_for_no_other_transaction(
    db: psycopg.Connection, admin: psycopg.Connection, ana: psycopg.Connection
) -> None:
    with ana.transaction():
        ana.execute("select memory_insert('I love tea.')")
        admin.execute("set lock_timeout = '1ms'")
        with fails("55000"):
            admin.execute("select model_unregister(%s)", (EMBEDDER,))


@pytest.mark.parametrize("name", ["nobody", None])
def test_an_unknown_model_is_an_error(admin: psycopg.Connection, name: str | None) -> None:
    with fails("42704", hint="mindful.model"):
        admin.execute("select model_unregister(%s)", (name,))
    with fails("42704", hint="mindful.model"):
        admin.execute("select model_fallback_set(%s, %s)", (name, GENERATOR))
    with fails("42704", hint="mindful.model"):
        admin.execute("select model_fallback_set(%s, null)", (name,))


def test_a_fallback_is_a_generator(admin: psycopg.Connection) -> None:
    for pair in ((GENERATOR, EMBEDDER), (EMBEDDER, GENERATOR), (SCRIPTED_EMBEDDER, None)):
        with fails("22023", hint="generator"):
            admin.execute("select model_fallback_set(%s, %s)", pair)
    with fails("42704"):
        admin.execute("select model_fallback_set(%s, 'nobody')", (GENERATOR,))


def test_fallbacks_make_no_cycle(db: psycopg.Connection, admin: psycopg.Connection) -> None:
    admin.execute("select model_register('second', 'generator', 'scripted', '')")
    for pair in ((GENERATOR, SCRIPTED_GENERATOR), (SCRIPTED_GENERATOR, "second")):
        admin.execute("select model_fallback_set(%s, %s)", pair)
    for pair in (("second", GENERATOR), ("second", SCRIPTED_GENERATOR), ("second", "second")):
        with fails("22023", hint="chain"):
            admin.execute("select model_fallback_set(%s, %s)", pair)
    assert one(db, "select fallback from model where name = 'second'") is None


def test_two_administrators_make_no_cycle_together(
    connect: Connect, db: psycopg.Connection, admin: psycopg.Connection
) -> None:
    other = connect("admin")
    other.execute("set lock_timeout = '200ms'")
    with admin.transaction():
        admin.execute("select model_fallback_set(%s, %s)", (GENERATOR, SCRIPTED_GENERATOR))
        with fails("55P03", hint=None):
            other.execute("select model_fallback_set(%s, %s)", (SCRIPTED_GENERATOR, GENERATOR))
    with fails("22023", hint="chain"):
        other.execute("select model_fallback_set(%s, %s)", (SCRIPTED_GENERATOR, GENERATOR))
