"""One module per probe; each ``gather(system)`` returns what it found and a tuple of problems, and judges nothing."""
