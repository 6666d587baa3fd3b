"""Commands that talk to a running service."""
