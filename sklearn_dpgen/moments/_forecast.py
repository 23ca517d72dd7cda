"""How long moments take, and how much memory, from public numbers: within a factor of 3."""

__all__ = ["image_forecast", "moments_forecast"]

# Seconds on two cores, fitted to fits of 10000 and 100000 records of 10 and 60 features, and of
# images of 8 and 28 pixels a side, by benchmarks/bench_forecast.py. What each is of is beside it.
_ENTRY, _PRODUCT = 6e-8, 1.2e-9  # an entry of a record, and a product of two
_INVERTED = 2e-9  # an entry of a covariance, in a column of it
_IMAGE, _PIXEL = 1.7e-6, 1.4e-10  # an image that is drawn, and a frequency in a pixel of one
_BLOCK = 1e7


def moments_forecast(n_samples, d, n_classes):
    """Return the forecast of two releases of moments of records of width d, by class."""
    seconds = n_samples * (_ENTRY * d + _PRODUCT * d**2) + _INVERTED * n_classes * d**3
    # Records, residuals, and some matrices a class; products are of a few records at a time.
    n_bytes = 32 * n_samples * d + 64 * n_classes * d**2 + _BLOCK
    return {"seconds": 0.02 + seconds, "bytes": n_bytes}


def image_forecast(n_samples, n_pixels, d, n_classes, n_drawn):
    """Return the forecast of moments of images, and of drawing so many to fit a law to them."""
    found = moments_forecast(n_samples, d, n_classes)
    read = _PIXEL * n_samples * d
    found["seconds"] += n_pixels * read + n_drawn * (_IMAGE + _PIXEL * n_pixels * d)
    found["bytes"] += 16 * n_samples * n_pixels
    return found
