"""Migrations of the store, run when it is opened; see :mod:`api.store.versions`."""
