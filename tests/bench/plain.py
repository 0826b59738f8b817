"""The peer: the same model files in plain llama-cpp-python, in a process of its own. One JSON line an order.

Orders on standard input: {"do": "generate", "prompt", "max_tokens"} or {"do": "embed", "texts"}.
"""

import json
import sys
import time
from typing import Any


def main() -> None:
    """Load what the first order needs, then obey."""
    generator_file, embedder_file, system_prompt, context = sys.argv[1:5]
    models: dict[str, Any] = {}
    for line in sys.stdin:
        order = json.loads(line)
        started = time.perf_counter()
        if order["do"] == "generate":
            done = _generate(models, generator_file, int(context), system_prompt, order)
        else:
            done = _embed(models, embedder_file, order)
        print(json.dumps(done | {"seconds": time.perf_counter() - started}), flush=True)


def _generate(
    models: dict[str, Any], file: str, context: int, system_prompt: str, order: dict[str, Any]
) -> dict[str, Any]:
    from llama_cpp import Llama

    model = models.get("generator") or Llama(
        file, n_ctx=context, n_threads=1, n_threads_batch=1, flash_attn=True, verbose=False
    )
    models["generator"] = model
    answer = model.create_chat_completion(
        [{"role": "system", "content": system_prompt}, {"role": "user", "content": order["prompt"]}],
        max_tokens=order["max_tokens"],
        temperature=0.0,
        repeat_penalty=1.0,
    )
    return {
        "text": answer["choices"][0]["message"]["content"],
        "tokens": answer["usage"]["completion_tokens"],
    }


def _embed(models: dict[str, Any], file: str, order: dict[str, Any]) -> dict[str, Any]:
    from llama_cpp import Llama

    model = models.get("embedder") or Llama(
        file, embedding=True, n_ctx=256, n_batch=256, n_ubatch=256, n_threads=1, n_threads_batch=1,
        flash_attn=True, verbose=False,
    )  # fmt: skip
    models["embedder"] = model
    return {"vectors": len(model.embed(order["texts"], normalize=True))}


if __name__ == "__main__":
    main()
