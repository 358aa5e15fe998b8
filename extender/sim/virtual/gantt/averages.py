"""Sums over time, averaged over columns a few pixels wide: as small for 100,000 pods as for ten."""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

Change = tuple[float, float]  # at which moment, by how much
Columns = npt.NDArray[np.float64]


def averages(changes: Iterable[Change], begin: float, end: float, columns: int) -> Columns:
    """The mean of a sum in each column, where it starts at 0 and takes these changes."""
    width = (end - begin) / columns
    part, rest = np.zeros(columns + 1), np.zeros(columns + 2)
    for moment, amount in changes:
        place = min(max((moment - begin) / width, 0.0), float(columns))
        column = int(place)
        part[column] += amount * (column + 1 - place)
        rest[column + 1] += amount
    means: Columns = (part + np.cumsum(rest)[:-1])[:columns]
    return means
