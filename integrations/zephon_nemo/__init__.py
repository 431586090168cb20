"""Zephon for Megatron-Bridge and NeMo AutoModel."""
