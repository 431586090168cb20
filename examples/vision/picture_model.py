"""The demo's small language model with eyes: patches become embeddings in place of the placeholders."""

from __future__ import annotations

from collections.abc import Mapping

from model import HEADS, LAYERS, WIDTH, Block
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, gelu, linear

__all__ = ["HEADS", "LAYERS", "PictureModel"]


class PictureModel(nn.Module):
    """A decoder that sees images: `patches` values of as many patches as make a token go through two layers."""

    def __init__(self, *, vocabulary: int, length: int, patch_values: int, patches: int, placeholder: int) -> None:
        super().__init__()
        self.placeholder = placeholder
        self.token_values = patch_values * patches
        self.tokens = nn.Embedding(vocabulary, WIDTH)
        self.positions = nn.Embedding(length, WIDTH)
        self.look = nn.Linear(self.token_values, WIDTH)
        self.see = nn.Linear(WIDTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        for table in (self.tokens, self.positions):
            nn.init.normal_(table.weight, std=0.02)

    def forward(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Return the summed loss (a scalar) of the labels that count, over the rows of a micro-batch."""
        x = self.tokens(batch["tokens"])
        # The patches of a token stand together, and tokens and placeholders come in the same order.
        seen = self.see(gelu(self.look(batch["pixel_values"].view(-1, self.token_values))))
        x = x.masked_scatter((batch["tokens"] == self.placeholder)[..., None], seen) + self.positions(
            batch["position_ids"]
        )
        for block in self.blocks:
            x = block(x, batch["attention_mask"])
        counts = batch["loss_mask"] > 0
        logits = linear(self.norm(x)[counts], self.tokens.weight)
        loss: Tensor = cross_entropy(logits, batch["labels"][counts], reduction="sum")
        return loss
