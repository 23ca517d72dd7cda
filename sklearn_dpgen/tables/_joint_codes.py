"""Codes of records in joint tables of columns."""

from itertools import pairwise

import numpy as np
import torch

__all__ = ["Codes", "JointCoder"]

# Codes below it fit in 16 bits.
_SHORT = 1 << 16


class Codes:
    """Codes of records, as an array of unsigned or long integers and a tensor of the same bits.

    Parameters
    ----------
    n_rows : int
    is_short : bool
        Whether in 16 bits instead of 64.
    """

    def __init__(self, n_rows, is_short):
        # PyTorch aligns what it allocates: sums take half the time.
        dtype = torch.int16 if is_short else torch.int64
        self.tensor = torch.empty(n_rows, dtype=dtype, device="cpu")
        self.array = self.tensor.numpy().view(np.uint16 if is_short else np.int64)
        self.is_short = is_short


class JointCoder:
    """Codes of records in joint tables: neighbours that begin with the same columns share them.

    Parameters
    ----------
    sizes : sequence of int
        The number of categories of each column.
    blocks : sequence of tuple of int
        The columns of each joint table, the last one running fastest.

    Attributes
    ----------
    columns : list of int
        Those of any table, ascending.
    """

    def __init__(self, sizes, blocks):
        self.columns = sorted({j for block in blocks for j in block})
        # Buffers are numbered: first those of single columns, then those of joint codes.
        self._is_short = [sizes[j] <= _SHORT for j in self.columns]
        self._plan = []
        self._n_rows, self._buffers = None, []
        # A column of one category adds nothing to a code.
        paths: list[tuple[int, ...]] = [
            tuple(j for j in b if sizes[j] > 1) or b[:1] for b in blocks
        ]
        # Where the codes of the columns so far are, and at what depth joint ones were written.
        places: dict[tuple[int, ...], tuple[int, int]]
        places = {(j,): (i, 0) for i, j in enumerate(self.columns)}
        numbers: dict = {}
        for path, following in pairwise([*paths, ()]):
            steps, n_cells = [], sizes[path[0]]
            for k in range(1, len(path)):
                before, joint, size = path[:k], path[: k + 1], sizes[path[k]]
                n_cells *= size
                if joint in places:
                    continue
                place, depth = places[before]
                # In place, where nobody asks again: fewer buffers stay in the cache.
                if k == 1 or before == following[:k]:
                    depth = k
                number = self._number(numbers, (depth, n_cells <= _SHORT))
                steps.append((place, places[path[k : k + 1]][0], number, size))
                places[joint] = number, depth
            self._plan.append((steps, places[path][0]))
            for joint in [p for p in places if len(p) > 1 and p != following[: len(p)]]:
                del places[joint]

    def _number(self, numbers, key):
        if key not in numbers:
            numbers[key] = len(self._is_short)
            self._is_short.append(key[1])
        return numbers[key]

    def __getstate__(self):
        return self.__dict__ | {"_n_rows": None, "_buffers": []}

    def codes(self, columns):
        """Yield the codes of records in each joint table, to be used before the next.

        Parameters
        ----------
        columns : list of ndarray of unsigned int of shape (n_rows,)
            Codes below the sizes, of each of :attr:`columns`.

        Yields
        ------
        Codes
        """
        self._allocate(len(columns[0]))
        buffers = self._buffers
        for codes, column in zip(buffers, columns, strict=False):
            np.copyto(codes.array, column)
        for steps, place in self._plan:
            for first, last, joint, size in steps:
                _join(buffers[first], buffers[last], size, buffers[joint])
            yield buffers[place]

    def _allocate(self, n_rows):
        if self._n_rows != n_rows:
            self._buffers = [Codes(n_rows, is_short) for is_short in self._is_short]
            self._n_rows = n_rows


def _join(first, last, size, joint):
    """Write ``first * size + last``, which fits; to a buffer that ``first`` may be."""
    if joint.is_short:
        # In 16 bits, whatever their sign.
        factor = size if size < _SHORT // 2 else size - _SHORT
        torch.add(last.tensor, first.tensor, alpha=factor, out=joint.tensor)
    else:
        np.multiply(first.array, size, out=joint.array, dtype=np.int64)
        np.add(joint.array, last.array, out=joint.array)
