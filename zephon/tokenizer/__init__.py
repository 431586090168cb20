"""Text to token ids: reading a tokenizer.json, and the engines that run it."""

from zephon.tokenizer.file import tokenizer_plan
from zephon.tokenizer.load import LoadedTokenizer, load_tokenizer

__all__ = ["LoadedTokenizer", "load_tokenizer", "tokenizer_plan"]
