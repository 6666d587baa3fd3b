"""The solver benchmark suite and its instances."""
