"""How long copying takes where failures are moved."""

from __future__ import annotations

from simulation.placement import copying_s


def test_copies_from_one_peer_come_one_after_another() -> None:
    """Three gained by a slot with two live workers take two rounds; slots copy side by side."""
    assert copying_s((3, 0), (0, 3), 5, (1000, 1000), 100.0) == 20.0
    assert copying_s((2, 2, 0), (1, 1, 2), 4, (1000, 3000, 1), 100.0) == 30.0
    assert copying_s((1, 1), (1, 1), 4, (1000, 1000), 100.0) == 0.0
