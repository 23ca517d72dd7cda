"""The declared shape and range of images."""

import math
import numbers

from sklearn_dpgen.exceptions import PublicValueError

__all__ = ["check_images", "check_width"]


def check_images(shape, pixel_range):
    """Return checked declarations of the range of pixels and the shape."""
    try:
        low, high = (float(bound) for bound in pixel_range)
    except (TypeError, ValueError):
        low, high = math.nan, math.nan
    if not (math.isfinite(high - low) and low < high):
        raise PublicValueError(
            f"pixel_range must be two numbers (low, high) with low < high, got {pixel_range!r}."
        )
    sides = tuple(shape)
    is_shape = len(sides) in (2, 3) and all(
        isinstance(side, numbers.Integral) and int(side) >= 1 for side in sides
    )
    if not is_shape:
        raise PublicValueError(
            f"shape must be (height, width) or (height, width, channels), got {shape!r}."
        )
    return low, high, tuple(int(side) for side in sides)


def check_width(X, shape):
    """Check that records have as many features as the declared shape has pixels."""
    if X.shape[1] != math.prod(shape):
        raise PublicValueError(
            f"shape {shape} has {math.prod(shape)} pixels, X has {X.shape[1]} features."
        )
