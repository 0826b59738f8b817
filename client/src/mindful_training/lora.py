"""Resumable training of a LoRA on the CPU, with the base's weights from its GGUF file."""

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

from mindful_training import file

_EVERY = 20
"""Steps between two checkpoints."""
_IGNORED = -100
"""Label of the prompt's tokens, which add nothing to the loss."""


@dataclass(frozen=True)
class Parameters:
    """Parameters of a training. Those of the registered model override these defaults."""

    rank: int = 16
    alpha: int = 32
    dropout: float = 0.0
    epochs: int = 3
    learning_rate: float = 5e-4
    batch: int = 4
    max_sequence_length: int = 512
    seed: int = 1
    rehearsed: int = 64
    target_modules: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj")

    def updated(self, given: Mapping[str, Any]) -> Parameters:
        """Return the parameters with the given values. Other names and None are ignored."""
        values = {name: value for name, value in given.items() if name in asdict(self) and value is not None}
        return replace(self, **{name: type(getattr(self, name))(value) for name, value in values.items()})


class Trainer:
    """One training. It resumes from its checkpoint."""

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
                target_modules=list(parameters.target_modules),
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
        """Return the adapter's matrices by name as numpy arrays."""
        return {name: tensor.detach().float().numpy() for name, tensor in self._state().items()}

    def _state(self) -> dict[str, Any]:
        return dict(get_peft_model_state_dict(self.model, save_embedding_layers=False))

    def _one(self, batch: Sequence[tuple[list[int], list[int]]], steps: int) -> float:
        share = self._step / steps
        for group in self._optimizer.param_groups:  # a short warm-up, then a cosine decay to a tenth
            rise = min(1.0, (self._step + 1) / max(1, steps // 20))
            group["lr"] = self._parameters.learning_rate * rise * (0.55 + 0.45 * math.cos(math.pi * share))
        width = max(len(tokens) for tokens, _ in batch)
        tokens = torch.tensor([ids + [0] * (width - len(ids)) for ids, _ in batch])
        labels = torch.tensor([labels + [_IGNORED] * (width - len(labels)) for _, labels in batch])
        mask = torch.tensor([[1] * len(ids) + [0] * (width - len(ids)) for ids, _ in batch])
        loss = self.model(input_ids=tokens, attention_mask=mask, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_((w for w in self.model.parameters() if w.requires_grad), 1.0)
        self._optimizer.step()
        self._optimizer.zero_grad()
        return float(loss.item())

    def _encoded(self, row: Mapping[str, str]) -> tuple[list[int], list[int]]:
        """Return the tokens of a pair and their labels. Those of the prompt are ignored."""
        prompt, end = self._prompt(row)
        before = self._tokenizer(prompt, add_special_tokens=False)["input_ids"]
        answer = self._tokenizer(row["output"] + end, add_special_tokens=False)["input_ids"]
        most = self._parameters.max_sequence_length
        return (before + answer)[:most], ([_IGNORED] * len(before) + answer)[:most]

    def _prompt(self, row: Mapping[str, str]) -> tuple[str, str]:
        question = f"{row['instruction']}\n\n{row['input']}" if row["input"] else row["instruction"]
        if self._settings["prompt_format"] == "alpaca":
            return f"### Instruction:\n{question}\n\n### Response:\n", str(self._tokenizer.eos_token)
        messages = [{"role": "user", "content": question}]
        if self._settings.get("system_prompt"):
            messages.insert(0, {"role": "system", "content": self._settings["system_prompt"]})
        prompt = self._tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        return str(prompt), str(self._tokenizer.eos_token)

    def _order(
        self, samples: Sequence[tuple[list[int], list[int]]], epoch: int
    ) -> list[list[tuple[list[int], list[int]]]]:
        """Return an epoch's batches in random order. The order depends on the seed and the epoch only."""
        shuffled = list(samples)
        random.Random(f"{self._parameters.seed} {epoch}").shuffle(shuffled)
        size = self._parameters.batch
        return [shuffled[at : at + size] for at in range(0, len(shuffled), size)]

    def _save(self) -> None:
        state = {"step": self._step, "adapter": self._state(), "optimizer": self._optimizer.state_dict()}
        data = io.BytesIO()  # in memory first: PyTorch's own writer does not report a full disk as such
        torch.save(state, data)
        file.write(self._checkpoint, data.getvalue())

    def _resume(self, report: Callable[[str], None]) -> None:
        if self._checkpoint.exists():
            state = torch.load(self._checkpoint, weights_only=True)
            set_peft_model_state_dict(self.model, state["adapter"])
            self._optimizer.load_state_dict(state["optimizer"])
            self._step = state["step"]
            report(f"resumed at step {self._step}")
