"""Votes of records that are never all at hand: iterables, dask arrays, little memory."""

import tracemalloc

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from sklearn_dpgen.evolution._votes import nearest_neighbor_votes


def grid(n, d=3, seed=0):
    """Return points many of which tie."""
    return np.random.default_rng(seed).integers(0, 5, (n, d)) / 2


X, V = grid(700), grid(90, seed=1)
METRICS = ["l2", "l1", "cosine"]


def squares(x, v):
    return np.square(x[:, None] - v).sum(axis=2)


@pytest.mark.slow
@pytest.mark.parametrize("metric", [*METRICS, squares])
def test_iterables(metric):
    expected = nearest_neighbor_votes(X, V, metric=metric)
    for cuts in ([350], [0, 0, 1, 2, 699, 700], range(1, 700, 9)):
        chunks = np.split(X, cuts)
        for iterable in (chunks, tuple(chunks), iter(chunks), (c.tolist() or c for c in chunks)):
            votes = nearest_neighbor_votes(iterable, V, metric=metric)
            np.testing.assert_array_equal(votes, expected)
    assert not nearest_neighbor_votes([], V).any()
    assert not nearest_neighbor_votes(iter([X[:0]]), V).any()


def test_chunk_that_does_not_fit():
    with pytest.raises(ValueError, match="X has 2 features, V has 3"):
        nearest_neighbor_votes(iter([X, X[:, :2]]), V)
    with pytest.raises(ValueError, match="X contains NaN"):
        nearest_neighbor_votes(iter([X, X * np.nan]), V)


def test_memory_mapped_file_is_read_in_parts(tmp_path):
    np.save(tmp_path / "records.npy", X.astype(np.float32))
    records = np.load(tmp_path / "records.npy", mmap_mode="r")
    votes = nearest_neighbor_votes(records, V, memory=0.01)
    np.testing.assert_array_equal(votes, nearest_neighbor_votes(X, V))


@pytest.mark.parametrize("metric", [*METRICS, squares])
def test_dask(metric):
    da = pytest.importorskip("dask.array")
    expected = nearest_neighbor_votes(X, V, metric=metric)
    for chunks in ((700, 3), (64, 2), ((1, 0, 699), (1, 2))):
        blocks = da.from_array(X, chunks=chunks)
        votes = nearest_neighbor_votes(blocks, V, metric=metric, memory=0.05)
        assert isinstance(votes, np.ndarray)
        assert votes.dtype == np.int64
        np.testing.assert_array_equal(votes, expected)
    unknown = da.from_array(X, chunks=(100, 3))
    unknown = unknown[unknown[:, 0] >= 0]
    np.testing.assert_array_equal(nearest_neighbor_votes(unknown, V, metric=metric), expected)


def test_dask_reads_every_block_once_and_gathers_none():
    da = pytest.importorskip("dask.array")
    seen = []

    def block(part, block_info=None):
        seen.append(block_info[0]["chunk-location"][0])
        return part

    blocks = da.from_array(X, chunks=(100, 3)).map_blocks(block, meta=np.empty((0, 0)))
    nearest_neighbor_votes(blocks, V, embedding=lambda x: 2 * x)
    assert sorted(seen) == list(range(7))


def test_dask_errors():
    da = pytest.importorskip("dask.array")
    with pytest.raises(ValueError, match="two dimensions"):
        nearest_neighbor_votes(da.zeros(5), V)
    with pytest.raises(ValueError, match="X has 2 features, V has 3"):
        nearest_neighbor_votes(da.zeros((5, 2)), V)


def test_dask_frame_is_not_an_array():
    pytest.importorskip("dask")

    class Frame:
        pass

    Frame.__module__ = "dask.dataframe"
    with pytest.raises(TypeError, match="must be a data frame of .* or an array"):
        nearest_neighbor_votes(Frame(), V)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["torch", "tree"])
def test_distributed_workers(backend):
    da = pytest.importorskip("dask.array")
    distributed = pytest.importorskip("distributed")
    expected = nearest_neighbor_votes(X, V)
    options = {"n_workers": 2, "threads_per_worker": 2, "processes": False}
    with (
        distributed.LocalCluster(**options, dashboard_address=None) as cluster,
        distributed.Client(cluster),
    ):
        blocks = da.from_array(X, chunks=(50, 3))
        votes = nearest_neighbor_votes(blocks, V, backend=backend)
    np.testing.assert_array_equal(votes, expected)


class LargestTensor(TorchDispatchMode):
    """Records the most bytes of any tensor that an operation returns."""

    bytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else (out,):
            if isinstance(tensor, torch.Tensor):
                self.bytes = max(self.bytes, tensor.untyped_storage().nbytes())
        return out


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("metric", [*METRICS, squares])
def test_memory_is_bounded(metric, tied):
    rng = np.random.default_rng(0)
    records, candidates = rng.standard_normal((20000, 4)), rng.standard_normal((500, 4))
    if tied:  # to all candidates, as far as any tolerance can tell
        candidates = 1 + 1e-15 * candidates
    n_rows = 500 if tied else 20000
    search = {"metric": metric, "backend": "torch" if metric in METRICS else "auto"}
    with LargestTensor():  # imports
        torch.zeros(1)
    tracemalloc.start()
    with LargestTensor() as largest:
        nearest_neighbor_votes(records[:n_rows], candidates, memory=8, **search)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # squares holds differences of four features beside the distances that are accounted for.
    assert peak < (40 if metric is squares else 8) * 2**20
    assert largest.bytes <= 4 * 2**20
