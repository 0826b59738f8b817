"""Run by the server's Python: write a small cross-encoder with random weights. Usage: cross_encoder.py FOLDER."""

import sys
from pathlib import Path

import torch
from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast


def main(folder: Path) -> None:
    """Write model and tokenizer."""
    folder.mkdir()
    words = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        "the",
        "a",
        "red",
        "blue",
        "fox",
        "bird",
        "sleeps",
        "sings",
    ]
    (folder / "vocab.txt").write_text("\n".join(words))
    BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder)
    torch.manual_seed(1)
    shape = BertConfig(
        vocab_size=len(words),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=128,
        num_labels=1,
        initializer_range=0.5,
    )
    BertForSequenceClassification(shape).save_pretrained(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
