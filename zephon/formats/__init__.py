"""From bytes to samples: shards, their index, and readers of blocks."""
