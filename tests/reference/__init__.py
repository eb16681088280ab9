"""The naive truth for what the package does: slow, short, independent of it."""
