"""LoRA on the CPU: a base's weights from its GGUF file, a step at a time, resumable."""

from __future__ import annotations

import io
import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

from mindful_client.training import file

_EVERY = 20
"""Steps between two checkpoints."""
_IGNORED = -100
"""Label of tokens that are not to be predicted: those of the prompt."""


@dataclass(frozen=True)
class Parameters:
    """How to train; what the registered model says goes before these."""

    rank: int = 16
    alpha: int = 32
    dropout: float = 0.0
    epochs: int = 3
    learning_rate: float = 5e-4
    batch: int = 4
    max_sequence_length: int = 512
    seed: int = 1
    rehearsed: int = 64

    def updated(self, given: Mapping[str, Any]) -> Parameters:
        """Return these with what is given."""
        known = {name: value for name, value in given.items() if name in asdict(self) and value is not None}
        return replace(self, **{name: type(getattr(self, name))(value) for name, value in known.items()})


TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj")


class Trainer:
    """One training, which a checkpoint takes up where it was."""

    def __init__(
        self, base: Path, settings: Mapping[str, Any], parameters: Parameters, checkpoint: Path
    ) -> None:
        self._parameters, self._settings, self._checkpoint = parameters, settings, checkpoint
        logging.disable_progress_bar()
        logging.set_verbosity_error()
        torch.manual_seed(parameters.seed)
        self._tokenizer = AutoTokenizer.from_pretrained(base.parent, gguf_file=base.name)
        model = AutoModelForCausalLM.from_pretrained(base.parent, gguf_file=base.name, dtype=torch.float32)
        self.config = model.config
        self.model = get_peft_model(
            model,
            LoraConfig(
                r=parameters.rank,
                lora_alpha=parameters.alpha,
                lora_dropout=parameters.dropout,
                target_modules=list(TARGETS),
                task_type="CAUSAL_LM",
            ),
        )
        trained = [weight for weight in self.model.parameters() if weight.requires_grad]
        self._optimizer = torch.optim.AdamW(trained, lr=parameters.learning_rate, weight_decay=0.0)
        self._step = 0

    def train(self, rows: Sequence[Mapping[str, str]], report: Callable[[str], None]) -> float:
        """Train on pairs, and return the mean loss of the last epoch's steps."""
        samples = [self._encoded(row) for row in rows]
        batches = [self._order(samples, epoch) for epoch in range(self._parameters.epochs)]
        steps = [batch for epoch in batches for batch in epoch]
        self._resume(report)
        begun, first, losses = time.monotonic(), self._step, list[float]()
        self.model.train()
        while self._step < len(steps):
            losses.append(self._one(steps[self._step], len(steps)))
            self._step += 1
            if self._step % _EVERY == 0 or self._step == len(steps):
                self._save()
                left = (time.monotonic() - begun) / (self._step - first) * (len(steps) - self._step)
                recent = losses[-_EVERY:]
                report(
                    f"step {self._step} of {len(steps)}, loss {sum(recent) / len(recent):.3f}, {left:.0f} s left"
                )
        last = losses[-len(batches[-1]) :]
        return sum(last) / len(last) if last else math.nan

    def matrices(self) -> dict[str, Any]:
        """Return the adapter's matrices by name, as numpy's arrays."""
        return {name: tensor.detach().float().numpy() for name, tensor in self._state().items()}

    def _state(self) -> dict[str, Any]:
        return dict(get_peft_model_state_dict(self.model, save_embedding_layers=False))

    def _one(self, batch: Sequence[tuple[list[int], list[int]]], steps: int) -> float:
        share = self._step / steps
        for group in self._optimizer.param_groups:  # a short warm-up, then down to a tenth along a cosine
            rise = min(1.0, (self._step + 1) / max(1, steps // 20))
            group["lr"] = self._parameters.learning_rate * rise * (0.55 + 0.45 * math.cos(math.pi * share))
        width = max(len(tokens) for tokens, _ in batch)
        tokens = torch.tensor([ids + [0] * (width - len(ids)) for ids, _ in batch])
        labels = torch.tensor([wanted + [_IGNORED] * (width - len(wanted)) for _, wanted in batch])
        mask = torch.tensor([[1] * len(ids) + [0] * (width - len(ids)) for ids, _ in batch])
        loss = self.model(input_ids=tokens, attention_mask=mask, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_((w for w in self.model.parameters() if w.requires_grad), 1.0)
        self._optimizer.step()
        self._optimizer.zero_grad()
        return float(loss.item())

    def _encoded(self, row: Mapping[str, str]) -> tuple[list[int], list[int]]:
        """Return the tokens of a pair, and which of them are to be predicted: the answer's and the end."""
        prompt, end = self._prompt(row)
        asked = self._tokenizer(prompt, add_special_tokens=False)["input_ids"]
        answered = self._tokenizer(row["output"] + end, add_special_tokens=False)["input_ids"]
        most = self._parameters.max_sequence_length
        return (asked + answered)[:most], ([_IGNORED] * len(asked) + answered)[:most]

    def _prompt(self, row: Mapping[str, str]) -> tuple[str, str]:
        asked = f"{row['instruction']}\n\n{row['input']}" if row["input"] else row["instruction"]
        if self._settings["prompt_format"] == "alpaca":
            return f"### Instruction:\n{asked}\n\n### Response:\n", str(self._tokenizer.eos_token)
        messages = [{"role": "user", "content": asked}]
        if self._settings.get("system_prompt"):
            messages.insert(0, {"role": "system", "content": self._settings["system_prompt"]})
        shown = self._tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        return str(shown), str(self._tokenizer.eos_token)

    def _order(
        self, samples: Sequence[tuple[list[int], list[int]]], epoch: int
    ) -> list[list[tuple[list[int], list[int]]]]:
        """Return an epoch's batches, in an order that only the seed and the epoch decide."""
        shuffled = list(samples)
        random.Random(f"{self._parameters.seed} {epoch}").shuffle(shuffled)
        size = self._parameters.batch
        return [shuffled[at : at + size] for at in range(0, len(shuffled), size)]

    def _save(self) -> None:
        kept = {"step": self._step, "adapter": self._state(), "optimizer": self._optimizer.state_dict()}
        data = io.BytesIO()  # in memory first: of a full disk PyTorch's own writer says only that it failed
        torch.save(kept, data)
        file.write(self._checkpoint, data.getvalue())

    def _resume(self, report: Callable[[str], None]) -> None:
        if self._checkpoint.exists():
            kept = torch.load(self._checkpoint, weights_only=True)
            set_peft_model_state_dict(self.model, kept["adapter"])
            self._optimizer.load_state_dict(kept["optimizer"])
            self._step = kept["step"]
            report(f"resumed at step {self._step}")
