"""The page for people: its files, kept by hand, and how they are served."""
