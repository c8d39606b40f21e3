"""The four panels on the left, in the order of work."""
