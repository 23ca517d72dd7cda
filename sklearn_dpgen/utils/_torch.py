"""Devices, dtypes, and conversion between arrays and tensors."""

import os
from contextlib import contextmanager

import numpy as np
import torch

from sklearn_dpgen.exceptions import PublicValueError

__all__ = ["as_array", "as_tensor", "resolve_device", "seeded_initialization"]


def resolve_device(device="auto"):
    """Return a ``torch.device``; "auto" is a CUDA device if there is one.

    Raises
    ------
    PublicValueError
        The device does not exist on this machine.
    """
    if isinstance(device, str) and device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        resolved = torch.device(device)
        # Only an allocation shows whether the device exists; without CUDA it raises AssertionError.
        torch.zeros(1, device=resolved).item()
    except (RuntimeError, AssertionError, TypeError, ValueError):
        raise PublicValueError(
            f"device={device!r} is not a device of this machine that PyTorch can use; 'auto' "
            "takes a GPU if there is one, otherwise 'cpu'."
        ) from None
    return resolved


def as_tensor(X, *, device="cpu", dtype=torch.float32):
    """Return an array or tensor as a tensor on ``device``."""
    if isinstance(X, torch.Tensor):
        return X.to(device=device, dtype=dtype)
    return torch.tensor(np.ascontiguousarray(X), dtype=dtype, device=device)


def as_array(X, dtype=np.float64):
    """Return a tensor as a detached NumPy array."""
    return X.detach().cpu().numpy().astype(dtype, copy=False)


@contextmanager
def seeded_initialization(seed):
    """Draw the initial weights of modules built inside from ``seed``; keep the global stream.

    None seeds from the operating system's entropy.
    """
    if seed is None:
        seed = int.from_bytes(os.urandom(8), "little") % 2**63
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield
