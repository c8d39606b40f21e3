"""Tunesmith's trainer. Needs MLX, never Qt."""
