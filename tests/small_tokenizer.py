"""A small byte-level BPE tokenizer.json, trained on the spot: real engines, no download."""

from __future__ import annotations

from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

SPECIAL = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|fim_prefix|>",
    "<|fim_suffix|>",
    "<|fim_middle|>",
    "<|pad|>",
)
PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CORPUS = (
    "The quick brown fox jumps over the lazy dog. user assistant system\n",
    "def function(value):\n    return [value, value + 1]  # 12345\n",
    "Wörter mit Umlauten: äöü ÄÖÜ ß. Привет мир. 日本語の文章です。\n",
    "it's don't we'll they've hello hello world world\n\n\n",
)


def make_small_tokenizer(*, vocab_size: int = 400) -> Tokenizer:
    """Return a trained tokenizer whose post-processor would add a token, as Llama's does."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PATTERN), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS * 5, trainer)
    first = tokenizer.token_to_id("<|endoftext|>")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", first)]
    )
    return tokenizer


def write_small_tokenizer(folder: Path, *, vocab_size: int = 400) -> Path:
    """Write a small tokenizer.json into a folder and return its path."""
    path = folder / "tokenizer.json"
    make_small_tokenizer(vocab_size=vocab_size).save(str(path))
    return path
