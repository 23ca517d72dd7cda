import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.fft import dctn, idctn
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks

from sklearn_dpgen.preprocessing import DCTTransformer
from sklearn_dpgen.preprocessing._dct import dct_mask

reproducibly = settings(deadline=None, max_examples=30, derandomize=True)
SHAPES = st.lists(st.integers(1, 6), min_size=1, max_size=3).map(tuple)


@parametrize_with_checks([DCTTransformer()])
def test_scikit_learn_conformity(estimator, check):
    check(estimator)


def images(shape, n=3, seed=0):
    return np.random.default_rng(seed).normal(size=(n, int(np.prod(shape))))


@reproducibly
@given(SHAPES)
def test_is_the_orthonormal_transform(shape):
    X = images(shape)
    transformer = DCTTransformer(shape).fit(X)
    axes = range(1, len(shape) + 1)
    expected = dctn(X.reshape(-1, *shape), axes=axes, norm="ortho").reshape(X.shape)
    np.testing.assert_allclose(transformer.transform(X), expected, atol=1e-12)
    matrix = transformer.transform(np.eye(X.shape[1]))
    np.testing.assert_allclose(matrix @ matrix.T, np.eye(X.shape[1]), atol=1e-12)
    np.testing.assert_allclose(transformer.inverse_transform(expected), X, atol=1e-12)


@reproducibly
@given(SHAPES, st.integers(0, 100))
def test_masked_inverse_is_the_projection_on_kept_coefficients(shape, seed):
    X = images(shape, seed=seed)
    mask = np.random.default_rng(seed).random(shape) < 0.5
    mask.flat[seed % mask.size] = True
    transformer = DCTTransformer(shape, mask=mask).fit(X)
    kept = transformer.transform(X)
    assert kept.shape == (3, mask.sum())
    full = np.zeros((3, *shape))
    full[:, mask] = kept
    axes = range(1, len(shape) + 1)
    expected = idctn(full, axes=axes, norm="ortho").reshape(X.shape)
    back = transformer.inverse_transform(kept)
    np.testing.assert_allclose(back, expected, atol=1e-12)
    np.testing.assert_allclose(transformer.transform(back), kept, atol=1e-12)
    # The map cannot increase a distance: a sensitivity in pixels bounds that in coefficients.
    gaps = np.linalg.norm(kept[:, None] - kept, axis=2)
    assert (gaps <= np.linalg.norm(X[:, None] - X, axis=2) + 1e-12).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tensors_and_arrays_agree(dtype):
    shape = (5, 4)
    tensor = torch.tensor(images(shape), dtype=dtype)
    transformer = DCTTransformer(shape, mask=dct_mask(images(shape, 1).reshape(shape), 0.5))
    from_array = transformer.fit_transform(tensor.numpy())
    from_tensor = transformer.transform(tensor)
    assert from_tensor.dtype is dtype
    assert from_array.dtype == tensor.numpy().dtype
    tolerance = 1e-5 if dtype is torch.float32 else 1e-12
    np.testing.assert_allclose(from_tensor.numpy(), from_array, atol=tolerance)
    np.testing.assert_allclose(
        transformer.inverse_transform(from_tensor).numpy(),
        transformer.inverse_transform(from_array),
        atol=tolerance,
    )


def test_gradients_flow_both_ways():
    shape = (3, 2)
    transformer = DCTTransformer(shape, mask=np.arange(6).reshape(shape) < 4).fit(images(shape))
    pixels = torch.tensor(images(shape), requires_grad=True)
    coefficients = torch.tensor(images((4,)), requires_grad=True)
    assert torch.autograd.gradcheck(transformer.transform, (pixels,))
    assert torch.autograd.gradcheck(transformer.inverse_transform, (coefficients,))


def test_integer_pixels_become_float64():
    pixels = torch.arange(6, dtype=torch.uint8).reshape(1, 6)
    transformer = DCTTransformer().fit(pixels.numpy())
    expected = dctn(np.arange(6.0), norm="ortho")[None]
    np.testing.assert_allclose(transformer.transform(pixels).numpy(), expected, atol=1e-12)
    np.testing.assert_allclose(transformer.transform(pixels.numpy()), expected, atol=1e-12)


def test_mask_keeps_what_is_above_the_quantile():
    image = images((28, 28), 1).reshape(28, 28)
    mask = dct_mask(image, 0.8)
    size = abs(dctn(image, norm="ortho"))
    assert mask.sum() == round(0.2 * 784)
    assert size[mask].min() > size[~mask].max()


def test_pickle_set_output_and_pipeline():
    X = images((4, 2))
    transformer = DCTTransformer((4, 2)).fit(X)
    copied = pickle.loads(pickle.dumps(transformer))
    np.testing.assert_array_equal(copied.transform(X), transformer.transform(X))
    pipeline = make_pipeline(transformer, FunctionTransformer()).fit(X)
    np.testing.assert_array_equal(pipeline.transform(X), transformer.transform(X))
    frame = transformer.set_output(transform="pandas").transform(X)
    assert list(frame.columns)[:2] == ["dcttransformer0", "dcttransformer1"]


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (lambda X: DCTTransformer((2, 2)).fit(X), "has 4 pixels, X has 6"),
        (lambda X: DCTTransformer((2, 3), mask=np.ones((3, 2), bool)).fit(X), "mask must be"),
        (lambda X: DCTTransformer((2, 3), mask=np.ones((2, 3))).fit(X), "mask must be"),
        (lambda X: DCTTransformer((2, 3), mask=np.zeros((2, 3), bool)).fit(X), "mask must be"),
        (lambda X: DCTTransformer().fit(X).transform(torch.ones(2, 5)), r"shape \(n, 6\)"),
        (lambda X: DCTTransformer().fit(X).inverse_transform(X[:, :5]), r"shape \(n, 6\)"),
        (lambda X: dct_mask(X, 1.0), "quantile must be"),
    ],
)
def test_errors(run, message):
    with pytest.raises(ValueError, match=message):
        run(images((2, 3)))
