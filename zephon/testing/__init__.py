"""Fakes and faults for tests: of Zephon's own, and of what is built on it."""
