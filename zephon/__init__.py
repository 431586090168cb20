"""Zephon: online tokenizing, mixing and packing in an order that topology, backend and restarts can't change."""
