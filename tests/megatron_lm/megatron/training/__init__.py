"""What scripts import of Megatron-LM, without its GPU parts: the shape of release 0.19's package.

`megatron` is a namespace package: beside this one, megatron-core's is the real one.
"""

from .global_vars import get_args
from .training import pretrain

__all__ = ["get_args", "pretrain"]
