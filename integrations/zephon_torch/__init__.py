"""Zephon for plain PyTorch: topology from a DeviceMesh, lanes in torch.distributed.checkpoint, dataset faces."""
