"""Devices, dtypes, and the way between arrays and tensors."""

import numpy as np
import torch

__all__ = ["as_array", "as_tensor", "resolve_device"]


def resolve_device(device="auto"):
    """Return a ``torch.device``; "auto" takes a CUDA device where there is one."""
    if isinstance(device, str) and device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(device)


def as_tensor(X, *, device="cpu", dtype=torch.float32):
    """Return an array or tensor as a tensor on ``device``."""
    if isinstance(X, torch.Tensor):
        return X.to(device=device, dtype=dtype)
    return torch.tensor(np.asarray(X), dtype=dtype, device=device)


def as_array(X, dtype=np.float64):
    """Return a tensor as a detached NumPy array."""
    return X.detach().cpu().numpy().astype(dtype, copy=False)
