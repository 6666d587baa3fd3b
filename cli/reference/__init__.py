"""The pages under ``docs/reference/``, written from the code: ``python -m cli.reference``."""
