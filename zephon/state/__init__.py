"""What a checkpoint holds: encoding, merging, checking."""
