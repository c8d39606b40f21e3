"""The small pieces the window is made of."""
