"""``replan demo train``: a small model trained by many processes, some of them killed, and the proof that nothing changed."""
