"""Options of models, their files, and what is entered of them."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mindful.core.errors import (
    DuplicateObjectError,
    InvalidParameterError,
    MindfulError,
    NullValueError,
    UndefinedObjectError,
)
from mindful.core.ports import Row
from mindful.models import runtime
from mindful.models.providers.options import (
    check_known,
    file_sha256,
    file_stamp,
    gguf_file,
    integer,
    readable_file,
)
from mindful.models.registry import adapter_register, model_register, model_serve, model_unload
from unit.fakes import FakeDatabase, scripted, wrapped


@given(st.integers(), st.integers(-100, 100), st.integers(0, 100))
def test_a_whole_number_lies_between_its_bounds(value: int, low: int, width: int) -> None:
    if low <= value <= low + width:
        assert integer({"n": value}, "n", 0, low, low + width) == value
    else:
        with pytest.raises(InvalidParameterError):
            integer({"n": value}, "n", 0, low, low + width)


@pytest.mark.parametrize("value", [1.0, "1", True, None, [1]])
def test_what_is_no_whole_number_is_refused(value: object) -> None:
    with pytest.raises(InvalidParameterError):
        integer({"n": value}, "n", 0, 0, 10)
    assert integer({}, "n", 3, 0, 10) == 3


def test_files_are_known_by_their_contents(tmp_path: Path) -> None:
    path, gguf = tmp_path / "a", tmp_path / "b.gguf"
    path.write_bytes(b"x" * 3_000_000)
    gguf.write_bytes(b"GGUF and more")
    db = FakeDatabase({})
    assert (
        file_sha256(str(path), db) == file_sha256(str(path)) == hashlib.sha256(path.read_bytes()).hexdigest()
    )
    assert db.checks == 3
    assert readable_file(str(path))
    assert not any(map(readable_file, (str(tmp_path), "relative", str(tmp_path / "none"), "/\0")[:3]))
    assert (gguf_file(str(gguf)), gguf_file(str(path)), gguf_file(str(tmp_path / "none"))) == (
        True,
        False,
        False,
    )


def test_a_file_is_another_when_its_size_or_time_is(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("one")
    os.utime(path, ns=(5, 5))
    first = file_stamp(str(path))
    os.utime(path, ns=(5, 6))
    second = file_stamp(str(path))
    path.write_text("three")
    os.utime(path, ns=(5, 6))
    assert len({first, second, file_stamp(str(path))}) == 3


KNOWN = ("system_prompt", "layout", "template", "stop", "context_length", "vector_type")


@pytest.mark.parametrize(
    "options",
    [
        {"other": 1},
        {"system_prompt": 1},
        {"layout": ["a"]},
        {"template": None},
        {"stop": "a"},
        {"stop": [""]},
        {"stop": [1]},
        {"layout": "{memories}"},
        {"layout": "{message}"},
        {"vector_type": "bit"},
    ],
)
def test_options_that_nothing_would_read_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameterError):
        check_known(options, KNOWN)


def test_good_options_are_taken() -> None:
    check_known({}, KNOWN)
    check_known(
        {"system_prompt": "a", "stop": ["a"], "layout": "{message} {memories}", "template": ""}, KNOWN
    )


class Registry(FakeDatabase):
    """A registry with some names taken."""

    def __init__(self, *taken: str, busy: int = 0) -> None:
        self.inserted: list[tuple[Any, ...]] = []
        self.busy = busy
        super().__init__(
            {
                "withdrawn_at is not null": [],
                "pg_catalog.translate": [{"name": name} for name in taken],
                "insert into mindful.model_tenant": [],
                "insert into mindful.model": self.insert,
            },
            scripted(base={}),
        )

    def insert(self, *row: Any) -> Sequence[Row]:
        """Enter a model, unless another transaction is entering one."""
        self.inserted.append(row)
        return [{}] if len(self.inserted) > self.busy else []


def register(db: Registry, **changed: Any) -> str:
    arguments = {
        "name": "m",
        "kind": "embedder",
        "provider": "scripted",
        "source": "",
        "options": '{"dims": 8}',
        "granted_to": None,
    }
    name: str = wrapped(model_register)(db, *(arguments | changed).values())
    return name


@pytest.mark.parametrize("name", ["", "Qwen", "_m", "m" * 41, "m\n", "m n", "\u00fc"])
def test_a_name_that_cannot_be_one_is_refused_before_the_model_is_loaded(name: str) -> None:
    db = Registry()
    with pytest.raises(InvalidParameterError, match="name is "):
        register(db, name=name, provider="nothing")
    assert not db.asked


@pytest.mark.parametrize(
    ("found", "arguments", "error"),
    [
        ([], (None, "unix:/x", "error"), NullValueError),
        ([], ("m", "unix:/x", None), NullValueError),
        ([], ("m", "unix:/x", "wait"), InvalidParameterError),
        ([], ("m", "unix:/x", "error"), UndefinedObjectError),
        ([("scripted", None)], ("m", "unix:/x", "error"), InvalidParameterError),
        ([("openai", None)], ("m", None, "error"), InvalidParameterError),
        ([("llama_cpp", "base")], ("m", "unix:/x", "error"), InvalidParameterError),
    ],
)
def test_files_of_llama_cpp_alone_are_served(
    found: list[tuple[str, str | None]], arguments: tuple[Any, ...], error: type[MindfulError]
) -> None:
    rows = [{"kind": "generator", "provider": provider, "base": base} for provider, base in found]
    with pytest.raises(error):
        wrapped(model_serve)(FakeDatabase({"select m.kind": rows}), *arguments)


def test_a_model_is_entered_with_its_facts() -> None:
    db = Registry()
    assert register(db) == "m"
    ((name, kind, provider, source, options, granted, sha256, context, dims, licence, base, trained),) = (
        db.inserted
    )
    assert (name, kind, provider, source, json.loads(options)) == (
        "m",
        "embedder",
        "scripted",
        "",
        {"dims": 8},
    )
    assert (granted, context, dims, licence, base, trained) == (["mindful_user"], 1 << 30, 8, None, None, 0)
    assert len(sha256) == 64
    register(db, granted_to=[])
    assert db.inserted[1][5] == []


def test_another_default_that_comes_first_is_waited_for() -> None:
    db = Registry(busy=2)
    register(db)
    assert len(db.inserted) == 3


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"name": None}, NullValueError),
        ({"kind": None}, NullValueError),
        ({"provider": None}, NullValueError),
        ({"source": None}, NullValueError),
        ({"kind": "oracle"}, InvalidParameterError),
        ({"provider": "nobody"}, InvalidParameterError),
        ({"options": "[]"}, InvalidParameterError),
        ({"options": "[" * 100_000}, InvalidParameterError),
        ({"options": '{"dims": 0}'}, InvalidParameterError),
    ],
)
def test_bad_models_are_not_entered(changed: dict[str, Any], error: type[MindfulError]) -> None:
    db = Registry()
    with pytest.raises(error):
        register(db, **changed)
    assert db.inserted == []


def test_a_name_that_is_taken_is_refused() -> None:
    db = Registry("M")
    with pytest.raises(DuplicateObjectError, match="M"):
        register(db)
    assert db.inserted == []


def adapt(**changed: Any) -> None:
    arguments = {
        "name": "a",
        "base": "base",
        "source": "/a.gguf",
        "scale": 1.0,
        "options": None,
        "granted_to": ["mindful_user"],
        "trained_on": None,
    }
    wrapped(adapter_register)(Registry(), *(arguments | changed).values())


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"name": None}, NullValueError),
        ({"base": None}, NullValueError),
        ({"source": None}, NullValueError),
        ({"scale": None}, NullValueError),
        ({"scale": 10.01}, InvalidParameterError),
        ({"scale": -10.01}, InvalidParameterError),
        ({"scale": float("nan")}, InvalidParameterError),
        ({"granted_to": None}, InvalidParameterError),
        ({"trained_on": '{"ana": 3}'}, InvalidParameterError),
        ({"granted_to": None, "trained_on": '{"ana": true}'}, InvalidParameterError),
        ({"granted_to": None, "trained_on": '{"": 3}'}, InvalidParameterError),
        ({"granted_to": None, "trained_on": "3"}, InvalidParameterError),
        ({"base": "nobody"}, MindfulError),
        ({}, InvalidParameterError),  # a scripted generator has no adapters
    ],
)
def test_bad_adapters_are_refused(changed: dict[str, Any], error: type[MindfulError]) -> None:
    with pytest.raises(error) as caught:
        adapt(**changed)
    assert caught.value.hint


@pytest.mark.parametrize("scale", [10.0, -10.0])
def test_the_strongest_scale_is_allowed(scale: float) -> None:
    with pytest.raises(UndefinedObjectError):  # so the base was looked for
        adapt(base="nobody", scale=scale)


@pytest.mark.parametrize(("name", "count"), [(None, 2), ("one", 1), ("other", 0)])
def test_models_that_are_given_back_are_counted(name: str | None, count: int) -> None:
    db = FakeDatabase(
        {"has_table_privilege": [{"may": True}], "_mindful.model_serves": [{"name": "one"}, {"name": "two"}]},
        scripted(one={}, two={}, hidden={}),
    )
    for held in ("one", "two", "hidden"):
        runtime.generator(db, held)
    assert wrapped(model_unload)(db, name) == count
    assert len(runtime.loaded()) == (0 if name is None else 3 - (name == "one"))
