"""Models: found on this machine, read from their folders, adapted, and taken apart layer by layer."""
