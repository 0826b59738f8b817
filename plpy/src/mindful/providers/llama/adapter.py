"""LoRA adapters: small GGUF files that change what a model says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mindful.errors import CorruptedModelError, UndefinedFileError
from mindful.providers.llama.library import last_error, llama
from mindful.providers.options import file_sha256, gguf_file


@dataclass(frozen=True)
class Adapter:
    """An adapter's file, the hash that it must have, and how strongly it is applied: 0 is not at all."""

    source: str
    sha256: str
    scale: float

    def load(self, model: Any) -> Any:
        """Load the adapter for a model, which frees it in the end."""
        check_file(self.source)
        if file_sha256(self.source) != self.sha256:
            raise CorruptedModelError(
                f'the adapter file "{self.source}" is not what was registered',
                "Restore the file, or register the new one under another name.",
            )
        adapter = llama.llama_adapter_lora_init(model, self.source.encode())
        if not adapter:
            raise CorruptedModelError(
                f'the adapter file "{self.source}" cannot be loaded: {last_error()}',
                "It must be a LoRA in GGUF, made for this base model.",
            )
        return adapter


def check_file(source: str) -> None:
    """Raise unless there is such a file."""
    if not gguf_file(source):
        raise UndefinedFileError(
            f'there is no GGUF file "{source}" that the server can read',
            "The path must be absolute, and the file readable by the operating system user of the server.",
        )
