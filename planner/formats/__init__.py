"""File formats: reading with limits, and the conversion between documents and the domain."""
