"""The ``replan`` command."""
