"""Ordered decisions: cursor, mixer, operators, packers, lane."""
