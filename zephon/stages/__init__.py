"""From samples to documents: stateless work."""
