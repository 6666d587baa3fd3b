"""Adapters: what other systems say about nodes, as failure events.

Each module reads one foreign text (Slurm, Kubernetes, torchft, nvidia-resiliency-ext), compares it with what is known
about the job and returns the events that make the difference. They are pure functions: the same text and state give
the same events, and once these are applied the same text gives none.
"""
