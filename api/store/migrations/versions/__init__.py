"""One module a migration. A released one is never changed."""
