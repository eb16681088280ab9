"""What the command line runs: reading tables, training, applying, reporting."""
