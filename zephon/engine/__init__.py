"""Puts lanes, backends and states together: pages to readers, rows to micro-batches, positions to states."""
