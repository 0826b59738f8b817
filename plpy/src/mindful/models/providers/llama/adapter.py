"""LoRA adapters: GGUF files with small changes of a model's weights."""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

from mindful.core.apart import apart
from mindful.core.errors import CorruptedModelError, UndefinedFileError
from mindful.core.ports import Interrupts
from mindful.models.providers.llama.library import last_error, llama
from mindful.models.providers.options import file_sha256, gguf_file


class Adapter(NamedTuple):
    """An adapter's file, its expected hash, and its scale (0: off, 1: as trained)."""

    source: str
    sha256: str
    scale: float

    def load(self, model: Any, interrupts: Interrupts | None = None) -> Any:
        """Load the adapter for a model. Freeing the model frees the adapter."""
        check_file(self.source)
        if file_sha256(self.source, interrupts) != self.sha256:
            raise CorruptedModelError(
                f'the adapter file "{self.source}" has changed since its registration',
                "Restore the file, or register the new file under another name.",
            )
        adapter = _load(model, self.source, interrupts)
        if not adapter:
            raise CorruptedModelError(
                f'the adapter file "{self.source}" cannot be loaded: {last_error()}',
                "Use a LoRA adapter in GGUF that was made for this base model.",
            )
        return adapter


def check_file(source: str) -> None:
    """Raise 58P01 unless the path names a readable GGUF file."""
    if not gguf_file(source):
        raise UndefinedFileError(
            f'there is no GGUF file "{source}" that the server can read',
            "Pass the absolute path of a file that the server's operating system user can read.",
        )


def _load(model: Any, source: str, interrupts: Interrupts | None) -> Any:
    def work(_stopped: threading.Event) -> Any:
        return llama.llama_adapter_lora_init(model, source.encode())

    if interrupts is None:
        return work(threading.Event())
    adapter = apart(work, interrupts)
    interrupts.check()
    return adapter
