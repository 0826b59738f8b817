"""Providers are found by entry points, whichever distribution has them."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from mindful.core.errors import InvalidParameterError, MissingPackageError
from mindful.models import providers

PROJECT = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    providers.module.cache_clear()
    yield
    providers.module.cache_clear()


def install(folder: Path, distribution: str, name: str, module: str, source: str | None = None) -> None:
    """Make a distribution that has a provider, as an installer would."""
    info = folder / f"{distribution}-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[{providers.GROUP}]\n{name} = {module}\n")
    if source is not None:
        (folder / f"{module}.py").write_text(source)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_the_constant_is_what_the_distribution_registers() -> None:
    assert PROJECT["entry-points"][providers.GROUP] == providers.OWN


def test_another_distribution_can_add_a_provider(site: Path) -> None:
    install(
        site,
        "echo-models",
        "echo",
        "echo_provider_of_a_test",
        "def load(spec, interrupts):\n    return spec\n",
    )
    assert providers.module("echo") is sys.modules["echo_provider_of_a_test"]


def test_no_provider_imports_triton(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its LLVM and PostgreSQL's crash the server."""
    monkeypatch.delitem(sys.modules, "triton", raising=False)
    (site / "triton.py").write_text("")
    install(site, "torch-models", "torching", "torch_provider_of_a_test", "import triton")
    with pytest.raises(MissingPackageError, match="triton"):
        providers.module("torching")


def test_a_name_without_an_entry_point_imports_nothing(site: Path) -> None:
    (site / "mine_of_a_test.py").write_text("raise SystemExit")
    install(site, "echo-models", "echo", "echo_provider_of_a_test")
    with pytest.raises(InvalidParameterError) as caught:
        providers.module("mine_of_a_test")
    assert "Providers are echo, llama_cpp, openai, scripted, sentence_transformers." in str(caught.value.hint)


def test_two_distributions_cannot_share_a_name(site: Path) -> None:
    install(site, "one", "echo", "echo_one")
    install(site, "two", "echo", "echo_two")
    with pytest.raises(InvalidParameterError, match="defined by 2 Python packages") as caught:
        providers.module("echo")
    assert "echo_one, echo_two" in str(caught.value.hint)


def test_another_distribution_cannot_take_the_name_of_an_own_provider(site: Path) -> None:
    install(site, "one", "sentence_transformers", "echo_one", "")
    assert providers.module("sentence_transformers") is sys.modules[providers.OWN["sentence_transformers"]]


def test_a_provider_whose_library_is_missing_is_not_installed(site: Path) -> None:
    install(site, "one", "broken", "broken_provider_of_a_test", "import no_such_library_of_a_test\n")
    with pytest.raises(MissingPackageError, match="no_such_library_of_a_test") as caught:
        providers.module("broken")
    assert caught.value.sqlstate == "0A000"
