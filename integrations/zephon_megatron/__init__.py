"""Zephon for Megatron-Core and Megatron-LM."""
