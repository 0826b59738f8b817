"""What three short prompts show about a generator: whether it has a chat template, and whether its answers end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from mindful.core.ports import Completion, Generator, Interrupts, Message, Sampling, Single

_PROMPTS = (
    "What color is snow? Answer with one word.",
    "Say hello.",
    "Which is larger, a cat or a house? Answer in one sentence.",
)
TRIAL_CONTEXT = 512
"""Tokens of the context for the prompts."""
_LONGEST = 48
"""Tokens of an answer. Each of the prompts is answered in fewer."""
_NO_SYSTEM = "{% if m.role == 'system' %}{{ raise_exception('there is no system role') }}{% endif %}"
_FAMILIES: Mapping[str, tuple[str, str]] = {
    "<|im_start|>": (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
        "<|im_end|>",
    ),
    "<|start_header_id|>": (
        "{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n{{ m.content }}<|eot_id|>"
        "{% endfor %}{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}",
        "<|eot_id|>",
    ),
    "<start_of_turn>": (
        f"{{% for m in messages %}}{_NO_SYSTEM}"
        "<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n{{ m.content }}<end_of_turn>\n{% endfor %}"
        "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}",
        "<end_of_turn>",
    ),
    "<|assistant|>": (
        "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}<|end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>\n{% endif %}",
        "<|end|>",
    ),
    "[INST]": (
        f"{{% for m in messages %}}{_NO_SYSTEM}{{% if m.role == 'assistant' %}}"
        " {{ m.content }}</s>{% else %}[INST] {{ m.content }} [/INST]{% endif %}{% endfor %}",
        "</s>",
    ),
}
"""Chat templates and stops of families of models, by a control token of their vocabulary.

They are ChatML (Qwen, SmolLM), Llama 3, Gemma, Phi 3 and Mistral.
"""
_MARKS = tuple(
    dict.fromkeys(
        (
            *_FAMILIES,
            *(stop for _, stop in _FAMILIES.values()),
            *("[/INST]", "<|endoftext|>", "\nUser:", "\nHuman:", "\nQuestion:", "\n### "),
        )
    )
)
"""Texts that begin or end a turn, and so belong into no answer."""


class Tokenizer(Protocol):
    """The tokenizer of a model's file."""

    def tokenize_template(self, text: str) -> list[int]:
        """Return the tokens of a chat template's own text."""


Remark = tuple[str, str]
"""A message and a hint."""


def family(tokenizer: Tokenizer) -> Mapping[str, Any]:
    """Return the options template and stop of the family of a file without a chat template, if it is known."""
    for mark, (template, stop) in _FAMILIES.items():
        if len(tokenizer.tokenize_template(mark)) == 1:
            return {"template": template, "stop": [stop]}
    return {}


def answers(generator: Generator, interrupts: Interrupts) -> Iterator[tuple[str, bool]]:
    """Answer three prompts, and yield each answer with whether it ended."""
    for prompt in _PROMPTS:
        completion = Completion()
        tokens = generator.encode([Message("user", prompt)])
        made = generator.stream(tokens, Sampling(_LONGEST), completion, Single(interrupts))
        yield "".join(made), completion.finish_reason == "stop"


def judge(found: Sequence[tuple[str, bool]]) -> tuple[list[str], list[Remark]]:
    """Return the stops that the answers show to be missing, and warnings with what to set."""
    marks = sorted({mark for text, _ in found for mark in _MARKS if mark in text})
    warnings = []
    if marks:
        warnings.append(
            (
                f"answers contained {', '.join(repr(mark) for mark in marks)}, so option stop was set to them",
                "Pass the option stop yourself if answers should not end there.",
            )
        )
    if not marks and not any(ended for _, ended in found):
        warnings.append(
            (
                f"none of {len(found)} short answers ended within {_LONGEST} tokens",
                "Use the file of an instruction-tuned model, or pass the options template and stop.",
            )
        )
    if not any(text.strip() for text, _ in found):
        warnings.append(
            ("all answers were empty", "Pass the option template that the model was trained with.")
        )
    return marks, warnings
