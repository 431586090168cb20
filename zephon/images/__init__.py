"""Images: what their headers say, the size that a rule gives them, and their pixels."""
