"""The live plots: a card each, in the window's colours."""
