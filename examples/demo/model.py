"""A small language model in plain PyTorch: it is only there to be fed."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn
from torch.nn.functional import cross_entropy, gelu, linear, scaled_dot_product_attention

WIDTH = 96
HEADS = 4
LAYERS = 2


class Block(nn.Module):
    """Pre-norm attention and MLP; attention is limited by a boolean mask, true where it is allowed."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.norm2 = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        batch, length, _ = x.shape
        heads = self.qkv(self.norm1(x)).view(batch, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        mixed = scaled_dot_product_attention(heads[0], heads[1], heads[2], attn_mask=mask)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.down(gelu(self.up(self.norm2(x))))


class Model(nn.Module):
    """A decoder with learned positions and tied embeddings: about a million parameters at 8,192 tokens."""

    def __init__(self, *, vocabulary: int, length: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, WIDTH)
        self.positions = nn.Embedding(length, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        for table in (self.tokens, self.positions):
            nn.init.normal_(table.weight, std=0.02)

    def forward(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Return the summed loss (a scalar) of the labels that count, over the rows of a micro-batch."""
        x = self.tokens(batch["tokens"]) + self.positions(batch["position_ids"])
        for block in self.blocks:
            x = block(x, batch["attention_mask"])
        # Logits only where there is a label: they are most of the work.
        counts = batch["loss_mask"] > 0
        logits = linear(self.norm(x)[counts], self.tokens.weight)
        loss: Tensor = cross_entropy(logits, batch["labels"][counts], reduction="sum")
        return loss
