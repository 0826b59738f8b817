"""The registry of models, and what one connection has loaded."""

import contextlib
import os
import signal
import struct
import subprocess
from pathlib import Path
from random import Random

import psycopg
import pytest
from gguf import GGUFReader
from psycopg.types.json import Jsonb
from support import EMBEDDER, GENERATOR, fails, one
from support.files import readable_folder
from support.models import model_files
from support.weights import TINY, write_truncated


@pytest.mark.smoke
def test_a_model_is_loaded_at_its_first_use_and_given_back(ana: psycopg.Connection) -> None:
    def loaded() -> list[str]:
        row = ana.execute(
            "select array(select m ->> 'name' from jsonb_array_elements(models) m) from mindful_status()"
        )
        names: list[str] = (row.fetchone() or ([],))[0]
        return names

    assert loaded() == []
    ana.execute("select llm_token_count('Hi')")
    assert loaded() == [GENERATOR]
    assert ana.execute("select model_unload('nobody'), model_unload(), model_unload()").fetchone() == (
        0,
        1,
        0,
    )
    assert loaded() == []


@pytest.mark.parametrize(
    ("call", "model", "kind"),
    [
        ("llm_generate('Hi', model => %s)", EMBEDDER, "embedder"),
        ("llm_chat('Hi', model => %s)", EMBEDDER, "embedder"),
        ("llm_embed('Hi', %s)", GENERATOR, "generator"),
        ("llm_rerank('Hi', '{x}', %s)", GENERATOR, "generator"),
    ],
)
@pytest.mark.shares
def test_a_model_of_another_kind_is_refused_as_one(
    ana: psycopg.Connection, call: str, model: str, kind: str
) -> None:
    with fails("42704", hint=f'"{model}" is a model of kind {kind}'):
        ana.execute(f"select {call}".encode(), (model,))


def test_unloading_returns_the_memory(ana: psycopg.Connection) -> None:
    def private() -> int:
        return int((ana.execute("select private_bytes from mindful_status()").fetchone() or (0,))[0])

    ana.execute("select llm_generate('Hi', max_tokens => 1)")
    ana.execute("select model_unload()")
    empty = private()
    ana.execute("select llm_generate('Hi', max_tokens => 1)")
    held = private() - empty
    assert held > 40_000_000
    ana.execute("select model_unload()")
    assert private() - empty < held / 10


@pytest.mark.smoke
def test_status_tells_what_this_connection_runs_on(ana: psycopg.Connection) -> None:
    row = ana.execute(
        """select extension_version = package_version, server_version = current_setting('server_version'),
               vector_version, python_prefix, tenant = current_user, backend_pid = pg_backend_pid(), private_bytes > 0
           from mindful_status()"""
    ).fetchone()
    assert row is not None
    assert row[:2] == (True, True)
    assert tuple(map(int, row[2].split(".")))[:2] >= (0, 8)
    assert Path(row[3], "bin", "python3").exists()
    assert row[4:] == (True, True, True)


@pytest.mark.smoke
def test_facts_are_read_from_the_file(ana: psycopg.Connection) -> None:
    rows = ana.execute(
        "select name, dims, context_length, license, length(sha256), is_default from model"
    ).fetchall()
    assert (GENERATOR, None, 2048, "apache-2.0", 64, True) in rows
    assert (EMBEDDER, 384, 256, "apache-2.0", 64, True) in rows


def test_a_missing_or_damaged_file_is_refused(db: psycopg.Connection) -> None:
    source = Path(model_files(db)["generator"])
    with readable_folder() as folder:
        truncated, garbage = folder / "truncated.gguf", folder / "garbage.gguf"
        with source.open("rb") as file:
            truncated.write_bytes(file.read(30_000_000))
        garbage.write_bytes(b"no model at all")
        for path, sqlstate in ((truncated, "XX001"), (garbage, "58P01"), (folder / "nothing.gguf", "58P01")):
            with fails(sqlstate):
                db.execute("select model_register('broken', 'generator', 'llama_cpp', %s)", (str(path),))
    assert db.execute("select count(*) from model where name = 'broken'").fetchone() == (0,)


@pytest.mark.parametrize(
    ("name", "kind", "provider", "options", "sqlstate"),
    [
        (None, "generator", "scripted", {}, "22004"),
        ("", "generator", "scripted", {}, "22023"),
        ("Qwen", "generator", "scripted", {}, "22023"),
        ("m" * 41, "generator", "scripted", {}, "22023"),
        ("m\n", "generator", "scripted", {}, "22023"),
        ("m", "oracle", "scripted", {}, "22023"),
        ("m", "generator", "os.system", {}, "22023"),
        ("m", "generator", "mindful_scripted", {}, "22023"),
        ("m", "generator", "scripted", [], "22023"),
        ("m", "generator", "scripted", {"context_length": "many"}, "22023"),
        ("m", "generator", "scripted", {"replies": [["("]]}, "22023"),
        (GENERATOR, "generator", "scripted", {}, "42710"),
    ],
)
@pytest.mark.smoke
@pytest.mark.shares
def test_bad_registrations_are_refused(
    admin: psycopg.Connection, name: str | None, kind: str, provider: str, options: object, sqlstate: str
) -> None:
    with fails(sqlstate):
        admin.execute("select model_register(%s, %s, %s, '', %s)", (name, kind, provider, Jsonb(options)))


@pytest.mark.smoke
def test_an_option_nobody_reads_is_refused(db: psycopg.Connection) -> None:
    files = model_files(db)
    for kind, options in (
        ("generator", {"context": 10}),
        ("generator", {"layout": "no placeholder"}),
        ("generator", {"context_length": 10_000_000}),
        ("generator", {"repack": "yes"}),
        ("embedder", {"repack": 1}),
        ("generator", {"flash_attention": "off"}),
        ("embedder", {"flash_attention": False}),
        ("embedder", {"layout": "{memories}{message}"}),
    ):
        with fails("22023"):
            db.execute(
                "select model_register('m', %s, 'llama_cpp', %s, %s)", (kind, files[kind], Jsonb(options))
            )


def test_a_file_of_the_other_kind_is_refused(db: psycopg.Connection) -> None:
    files = model_files(db)
    for kind, other in (("generator", "embedder"), ("embedder", "generator")):
        with fails("22023", hint=other):
            db.execute("select model_register('m', %s, 'llama_cpp', %s)", (kind, files[other]))


def test_only_administrators_register(ana: psycopg.Connection, admin: psycopg.Connection) -> None:
    for statement in (
        "select model_register('m', 'generator', 'scripted', '')",
        "select model_default_set('scripted')",
        "insert into model (name, kind, provider, source, sha256) values ('m', 'generator', 'scripted', '', '')",
        "update model set is_default = false",
        "select _mindful.embedding_table_create('m', 3)",
        "select model_unregister('scripted')",
        "select model_fallback_set('scripted', null)",
    ):
        with fails("42501", hint=None):
            ana.execute(statement)
    admin.execute("select model_register('m', 'generator', 'scripted', '')")
    admin.execute("select model_default_set('m')")
    assert ana.execute("select llm_generate('anything')").fetchone() == ("I do not know.",)
    with fails("42704"):
        admin.execute("select model_default_set('nobody')")


def test_a_model_serves_only_those_it_is_granted_to(
    admin: psycopg.Connection, ana: psycopg.Connection, bob: psycopg.Connection
) -> None:
    admin.execute(
        "select model_register('private', 'generator', 'scripted', '', granted_to => array[%s])",
        (ana.info.user,),
    )
    assert ana.execute("select llm_generate('Hi', 'private')").fetchone() == ("I do not know.",)
    assert bob.execute("select count(*) from model where name = 'private'").fetchone() == (0,)
    with fails("42704"):
        bob.execute("select llm_generate('Hi', 'private')")


def test_an_administrators_embedding_table_is_not_his_own(
    admin: psycopg.Connection, ana: psycopg.Connection
) -> None:
    admin.execute("select model_register('small.one', 'embedder', 'scripted', '', '{\"dims\": 3}')")
    for statement in (
        "alter table memory_embedding_small_one disable row level security",
        "select * from memory_embedding_small_one",
    ):
        with fails("42501", hint=None):
            admin.execute(statement)
    assert ana.execute("select count(*) from memory_embedding_small_one").fetchone() == (0,)


def test_a_package_of_another_version_says_so(db: psycopg.Connection) -> None:
    db.execute("update pg_extension set extversion = '0.0.1' where extname = 'mindful'")
    with fails("55000", hint="Reconnect"):
        db.execute("select llm_token_count('Hi')")


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        ("generator", "llama.attention.layer_norm_rms_epsilon"),
        ("embedder", "bert.attention.layer_norm_epsilon"),
    ],
)
def test_a_file_that_ends_the_process_that_runs_it_is_refused(
    db: psycopg.Connection, kind: str, key: str
) -> None:
    """llama.cpp aborts where an epsilon is negative; in the backend that would end all connections."""
    with readable_folder() as folder:
        path = folder / "damaged.gguf"
        write_truncated(path, model_files(db)[kind], tokens=TINY)
        field = GGUFReader(path).fields[key]
        patch(path, field.offset + sum(part.nbytes for part in field.parts[:-1]), struct.pack("<f", -1.0))
        with fails("XX001", hint="Copy"):
            db.execute("select model_register('m', %s, 'llama_cpp', %s)", (kind, str(path)))
    assert not db.broken


ABORT = """
import ctypes, pathlib
from mindful.models.providers.llama.library import llama
base = pathlib.Path(llama.__file__).parent / "lib" / "libggml-base.so"
ctypes.CDLL(str(base)).ggml_abort(b"here", 1, b"for a test")
"""


def test_a_llama_that_aborts_runs_no_debugger(db: psycopg.Connection, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    for name in ("gdb", "lldb"):
        (tmp_path / name).write_text(f"#!/bin/sh\ntouch '{ran}'\n")
        (tmp_path / name).chmod(0o755)
    done = subprocess.run(
        [f"{one(db, 'select python_prefix from mindful_status()')}/bin/python", "-c", ABORT],
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        check=False,
    )
    assert done.returncode == -signal.SIGABRT, done.stderr
    assert not ran.exists()


def test_damaged_models_never_end_the_server(db: psycopg.Connection) -> None:
    """Cut at many places, with bytes, sizes and counts changed anywhere before the weights."""
    random = Random(11)
    register = "select model_register('m', 'embedder', 'llama_cpp', %s)"
    with readable_folder() as folder:
        path = folder / "damaged.gguf"
        whole = Path(write_truncated(path, model_files(db)["embedder"], tokens=TINY)).read_bytes()
        weights = min(tensor.data_offset for tensor in GGUFReader(path).tensors)
        with db.transaction(force_rollback=True):
            db.execute(register, (str(path),))
        for at in range(24):
            place = random.choice([random.randrange(4, 64), random.randrange(weights - 8)])
            damage = random.choice([b"\x00", b"\xff" * 4, struct.pack("<Q", 2**62), random.randbytes(2)])
            if at % 4 == 0:
                os.truncate(path, random.randrange(len(whole)))
            else:
                patch(path, place, damage)
            # Many damages are harmless: a letter of the license, a token's text.
            with (
                contextlib.suppress(psycopg.errors.DataCorrupted, psycopg.errors.InvalidParameterValue),
                db.transaction(),
            ):
                db.execute(register, (str(path),))
                raise psycopg.Rollback
            path.write_bytes(whole) if at % 4 == 0 else patch(path, place, whole[place : place + len(damage)])


def patch(path: Path, place: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(place)
        file.write(data)


def test_a_file_without_a_template_gets_that_of_its_family(db: psycopg.Connection) -> None:
    """SmolLM2's vocabulary has the control tokens of ChatML. Cut short, its answers do not end."""
    heard: list[str] = []
    db.add_notice_handler(lambda notice: heard.append(f"{notice.message_primary} {notice.message_hint}"))
    with readable_folder() as folder:
        base = model_files(db)["generator"]
        path = write_truncated(folder / "bare.gguf", base, tokens=TINY, without="tokenizer.chat_template")
        db.execute("select model_register('bare', 'generator', 'llama_cpp', %s)", (path,))
        own = Jsonb({"template": "{{ messages[-1].content }}", "stop": ["END"]})
        db.execute("select model_register('own', 'generator', 'llama_cpp', %s, %s)", (path, own))
    rows = db.execute("select name, options from model where name in ('bare', 'own')").fetchall()
    options: dict[str, dict[str, list[str]]] = dict(rows)
    assert "<|im_start|>assistant" in options["bare"]["template"]
    assert "<|im_end|>" in options["bare"]["stop"]
    assert options["own"] == own.obj
    assert any('model "bare"' in message for message in heard)


def test_a_good_file_is_registered_as_it_is(db: psycopg.Connection) -> None:
    heard: list[object] = []
    db.add_notice_handler(lambda notice: heard.append(notice.message_primary))
    path = model_files(db)["generator"]
    db.execute("select model_register('again', 'generator', 'llama_cpp', %s)", (path,))
    assert db.execute("select options from model where name = 'again'").fetchone() == ({},)
    assert heard == []
