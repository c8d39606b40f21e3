"""The pages on the right, one subject at a time."""
