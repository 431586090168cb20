"""Zephon for Lightning: `ZephonDataModule`."""
