"""LoRA adapters: generators that change another one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest
from support import EMBEDDER, SCRIPTED_GENERATOR, Connect, fails, one
from support.deletion import delete
from support.files import readable_folder
from support.models import model_files
from support.weights import KEPT, TINY, write_adapter, write_truncated

ASK = "select llm_generate('Name three rivers.', %s, max_tokens => 16, seed => 1)"
"""With a seed the prompt is evaluated anew: what a cache holds of it would round the answer otherwise."""
REGISTER = "select adapter_register(%s, %s, %s, %s::real, granted_to => '{mindful_user}')"
REGISTERED = "select exists (select from model where name = %s)"


@pytest.fixture(scope="module")
def files() -> Iterator[Path]:
    """Where adapters lie that the server can read."""
    with readable_folder() as folder:
        yield folder


@pytest.fixture
def adapter(brief: str, admin: psycopg.Connection, files: Path) -> str:
    """An adapter of the default generator."""
    if not one(admin, REGISTERED, "style"):
        admin.execute(REGISTER, ("style", brief, write(files / "style.gguf"), 1.0))
    return "style"


@pytest.fixture
def tiny(brief: str, db: psycopg.Connection, admin: psycopg.Connection, files: Path) -> str:
    """A generator that is loaded in no time, for files that are refused."""
    if not one(admin, REGISTERED, "tiny"):
        path = write_truncated(files / "tiny.gguf", model_files(db)["generator"], tokens=TINY)
        admin.execute("select model_register('tiny', 'generator', 'llama_cpp', %s)", (path,))
    return "tiny"


def write(path: Path, seed: int = 0, **damage: Any) -> str:
    """Write an adapter for generators cut short."""
    return write_adapter(path, seed, layers=KEPT, **damage)


def answer(db: psycopg.Connection, model: str | None) -> str:
    return str((db.execute(ASK, (model,)).fetchone() or ("",))[0])


@pytest.mark.shares
def test_an_adapter_changes_answers_and_at_scale_zero_none(
    brief: str, ana: psycopg.Connection, admin: psycopg.Connection, files: Path, adapter: str
) -> None:
    admin.execute(REGISTER, ("nothing", brief, str(files / "style.gguf"), 0.0))
    admin.execute(REGISTER, ("weak", brief, str(files / "style.gguf"), 0.3))
    ana.execute("select model_unload()")
    base, changed, weak = (answer(ana, model) for model in (brief, adapter, "weak"))
    assert len({base, changed, weak}) == 3
    assert answer(ana, "nothing") == base
    # Taking turns, neither sees what the other computed.
    assert [answer(ana, model) for model in (brief, adapter, brief)] == [base, changed, base]
    loaded = ana.execute(
        "select array_agg(m ->> 'name' order by m ->> 'name') from mindful_status() s, jsonb_array_elements(s.models) m"
    )
    assert (loaded.fetchone() or ())[0] == [brief, "nothing", "style", "weak"]
    assert ana.execute("select model_unload('style'), model_unload()").fetchone() == (1, 3)
    assert answer(ana, adapter) == changed


@pytest.mark.shares
def test_every_path_uses_the_adapter(brief: str, ana: psycopg.Connection, adapter: str) -> None:
    for call in (
        "(llm_generate_many(array['Name three rivers.'], %s, max_tokens => 16))[1]",
        "(select string_agg(s, '') from llm_generate_stream('Name three rivers.', %s, max_tokens => 16) s)",
        "(select probabilities::text from unnest(llm_classify_many('{A river.}', '{wet,dry}', model => %s)))",
        "llm_chat('Name three rivers.', model => %s, max_tokens => 16)",
    ):
        base, changed, again = (
            ana.execute(f"select {call}".encode(), (model,)).fetchone() for model in (brief, adapter, brief)
        )
        assert base == again != changed, call


@pytest.mark.shares
def test_the_active_adapter_is_the_default_and_goes_in_one_call(
    brief: str, ana: psycopg.Connection, admin: psycopg.Connection, adapter: str
) -> None:
    base = answer(ana, None)
    admin.execute("select model_default_set(%s)", (adapter,))
    assert answer(ana, None) == answer(ana, adapter) != base
    admin.execute("select model_default_set(%s)", (brief,))
    assert answer(ana, None) == base


@pytest.mark.shares
def test_calls_are_logged_with_the_adapters_name_and_hash(
    brief: str, ana: psycopg.Connection, adapter: str
) -> None:
    answer(ana, adapter)
    row = ana.execute(
        """select g.model, g.model_sha256 = m.sha256, m.base, m.context_length, m.options
           from generation g join model m on m.name = g.model
           order by g.id desc limit 1"""
    ).fetchone()
    assert row == (adapter, True, brief, 2048, {"scale": 1.0})


def test_a_kept_state_is_the_adapters_own(brief: str, connect: Connect, files: Path, adapter: str) -> None:
    def told(connection: psycopg.Connection, session: str, model: str) -> tuple[list[float], int]:
        """Log-probabilities of a reply, and how many tokens of its prompt were not evaluated."""
        with connection.transaction(force_rollback=True):
            connection.execute(
                "select llm_chat('And then?', %s, model => %s, max_tokens => 12, memories => 0)",
                (session, model),
            )
            row = connection.execute(
                "select token_logprobs, cached_tokens from generation order by id desc limit 1"
            ).fetchone()
        assert row is not None
        return row[0], row[1]

    first = connect("ana")
    (session,) = first.execute("select session_start()").fetchone() or ()
    history = "The keeper writes down the ships that passed, the birds that he saw, and the weather. " * 8
    first.execute("select message_insert(%s, 'user', %s)", (session, history))
    for model in (brief, adapter):
        first.execute(
            "select llm_chat('Well?', %s, model => %s, max_tokens => 4, memories => 0)", (session, model)
        )
    assert first.execute("select array_agg(distinct model order by model) from kv_state").fetchone() == (
        [brief, adapter],
    )
    replies, second = [], connect("ana")
    for model in (brief, adapter):
        by_state, cached = told(second, session, model)
        assert cached > 64
        # The same by evaluating everything: what was kept is what this model computes.
        second.execute("select model_unload()")
        with second.transaction(force_rollback=True):
            delete(second, "kv_state")
            evaluated, cached = told(second, session, model)
        assert cached == 0
        assert by_state == pytest.approx(evaluated, abs=0.15)  # rounded otherwise in other batches
        replies.append(by_state)
    assert replies[0] != pytest.approx(replies[1], abs=0.5)


@pytest.mark.shares
def test_an_adapter_of_another_model_is_refused(admin: psycopg.Connection, files: Path, tiny: str) -> None:
    for path in (
        write(files / "other.gguf", architecture="gpt2"),
        write(files / "wide.gguf", columns=64),
        write(files / "kind.gguf", kind="model"),
    ):
        with fails("XX001", hint="base"):
            admin.execute(REGISTER, ("m", tiny, path, 1.0))
    for base, sqlstate in ((SCRIPTED_GENERATOR, "22023"), (EMBEDDER, "42704"), ("nobody", "42704")):
        with fails(sqlstate):
            admin.execute(REGISTER, ("m", base, path, 1.0))


@pytest.mark.shares
def test_a_damaged_file_is_refused(tiny: str, admin: psycopg.Connection, files: Path) -> None:
    whole = Path(write(files / "whole.gguf")).read_bytes()
    admin.execute(REGISTER, ("whole", tiny, str(files / "whole.gguf"), 1.0))
    random = np.random.default_rng(7)
    for at in range(40):
        damaged = bytearray(whole)
        if at % 2:
            damaged = damaged[: int(random.integers(4, len(whole)))]
        else:
            for place in random.integers(4, 64, 4):
                damaged[place] ^= 0xFF
        path = files / "damaged.gguf"
        path.write_bytes(damaged)
        path.chmod(0o644)
        with fails("XX001"):
            admin.execute(REGISTER, ("m", tiny, str(path), 1.0))
    with fails("58P01"):
        admin.execute(REGISTER, ("m", tiny, str(files / "missing.gguf"), 1.0))
    assert admin.execute("select count(*) from model where name = 'm'").fetchone() == (0,)


@pytest.mark.shares
def test_weights_that_are_no_numbers_are_refused(tiny: str, admin: psycopg.Connection, files: Path) -> None:
    path = write(files / "nan.gguf", factor=float("nan"))
    with fails("XX001", hint="again"):
        admin.execute(REGISTER, ("m", tiny, path, 1.0))


@pytest.mark.shares
def test_a_file_that_was_changed_since_is_refused(
    brief: str, ana: psycopg.Connection, admin: psycopg.Connection, files: Path
) -> None:
    path = write(files / "changing.gguf", seed=1)
    admin.execute(REGISTER, ("changing", brief, path, 1.0))
    before = answer(ana, "changing")
    write(files / "changing.gguf", seed=2)
    ana.execute("select model_unload()")
    with fails("XX001", hint="another name"):
        answer(ana, "changing")
    write(files / "changing.gguf", seed=1)
    assert answer(ana, "changing") == before


@pytest.mark.parametrize(
    ("arguments", "sqlstate"),
    [
        ("'m', null, '/x'", "22004"),
        ("'m', 'smollm2-135m-instruct', '/x', null", "22004"),
        ("'m', 'smollm2-135m-instruct', '/x', 'nan'", "22023"),
        ("'m', 'smollm2-135m-instruct', '/x', 11", "22023"),
        ("'m', 'smollm2-135m-instruct', '/x', options => '{\"context_length\": 64}'", "22023"),
        ("'m', 'smollm2-135m-instruct', '/x', options => '[]'", "22023"),
        ("'m', 'smollm2-135m-instruct', 'relative.gguf'", "58P01"),
        ("'style', 'smollm2-135m-instruct', '/x'", "42710"),
        ("'m', 'style', '/x'", "22023"),
    ],
)
@pytest.mark.shares
def test_bad_arguments_are_refused(
    admin: psycopg.Connection, adapter: str, arguments: str, sqlstate: str
) -> None:
    with fails(sqlstate):
        admin.execute(f"select adapter_register({arguments}, granted_to => '{{}}')".encode())


def test_only_administrators_register_and_only_those_granted_use(
    brief: str,
    ana: psycopg.Connection,
    bob: psycopg.Connection,
    admin: psycopg.Connection,
    files: Path,
    adapter: str,
) -> None:
    path = str(files / "style.gguf")
    with fails("42501", hint=None):
        ana.execute(REGISTER, ("m", brief, path, 1.0))
    admin.execute(
        "select adapter_register('private', %s, %s, granted_to => array[%s])",
        (brief, path, ana.info.user),
    )
    assert answer(ana, "private") == answer(ana, adapter)
    with fails("42704"):
        answer(bob, "private")
    # An adapter is of no use to whom its base is not granted.
    admin.execute("update model set granted_to = array[%s] where name = %s", (ana.info.user, brief))
    with fails("42704"):
        answer(bob, adapter)


@pytest.mark.shares
def test_a_base_stays_as_long_as_its_adapters(brief: str, admin: psycopg.Connection, adapter: str) -> None:
    with fails("23503", hint=None):
        admin.execute("delete from model where name = %s", (brief,))
    with admin.transaction(force_rollback=True):
        admin.execute("delete from model where name = %s", (adapter,))
