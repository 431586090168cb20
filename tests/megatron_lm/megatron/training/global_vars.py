"""Megatron-LM's arguments, kept for who asks."""

from __future__ import annotations

from argparse import Namespace

ARGS: list[Namespace] = []


def get_args() -> Namespace:
    return ARGS[0]
