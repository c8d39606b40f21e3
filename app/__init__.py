"""Tunesmith's window: PySide6 and pyqtgraph, never MLX."""
