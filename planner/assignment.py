"""The assignment problem: pair rows with columns so that the summed weight is largest."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]


def best_pairs(weights: IntArray) -> list[tuple[int, int]]:
    """Pair rows with columns, each at most once and as many as there can be, for the largest summed weight.

    The Hungarian method with potentials and shortest augmenting paths (Kuhn 1955; Jonker and Volgenant 1987), the
    inner loop over columns vectorised: at most ``n^2`` steps of ``m`` elements for ``n <= m``.

    Parameters
    ----------
    weights
        Shape ``(rows, columns)``, any integers whose magnitude times ``rows`` fits 62 bits.

    Returns
    -------
    list of (row, column)
        ``min(rows, columns)`` pairs, rows ascending.

    Examples
    --------
    >>> best_pairs(np.array([[3, 2], [3, 0]]))
    [(0, 1), (1, 0)]
    """
    rows, columns = weights.shape
    if rows > columns:
        return sorted((row, column) for column, row in best_pairs(np.ascontiguousarray(weights.T)))
    far = np.iinfo(np.int64).max // 2
    # Column 0 is a stand-in that holds the row being placed; row 0 means "free".
    row_potential = np.zeros(rows + 1, dtype=np.int64)
    column_potential = np.zeros(columns + 1, dtype=np.int64)
    row_at = np.zeros(columns + 1, dtype=np.int64)
    for row in range(1, rows + 1):
        row_at[0] = row
        column = 0
        slack = np.full(columns + 1, far, dtype=np.int64)
        previous = np.zeros(columns + 1, dtype=np.int64)
        reached = np.zeros(columns + 1, dtype=bool)
        while True:
            reached[column] = True
            here = int(row_at[column])
            reduced = -weights[here - 1] - row_potential[here] - column_potential[1:]
            better = ~reached[1:] & (reduced < slack[1:])
            slack[1:][better] = reduced[better]
            previous[1:][better] = column
            column = 1 + int(np.argmin(np.where(reached[1:], far, slack[1:])))
            step = slack[column]
            row_potential[row_at[reached]] += step
            column_potential[reached] -= step
            slack[~reached] -= step
            if row_at[column] == 0:
                break
        while column:
            before = int(previous[column])
            row_at[column] = row_at[before]
            column = before
    return sorted((int(row_at[column]) - 1, column - 1) for column in range(1, columns + 1) if row_at[column])
