import sys

import numpy as np
import pytest
import torch

from sklearn_dpgen.utils import _devices, _torch
from sklearn_dpgen.utils._devices import device_name
from sklearn_dpgen.utils._torch import (
    as_array,
    as_tensor,
    resolve_device,
    seeded_initialization,
)


def test_resolve_device():
    expected = "cuda" if torch.cuda.is_available() else "cpu"
    assert resolve_device().type == expected
    assert resolve_device("cpu") == resolve_device(torch.device("cpu")) == torch.device("cpu")


@pytest.mark.parametrize("device", ["nowhere", "", "cuda:99", "meta", 99, 1.5, None])
def test_a_device_that_is_not_there_is_named(device):
    with pytest.raises(ValueError, match=f"device={device!r} is not a device of this machine"):
        resolve_device(device)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int8, bool])
def test_there_and_back(dtype):
    X = np.array([[0, 1], [1, 0]], dtype=dtype)
    tensor = as_tensor(X)
    assert tensor.dtype == torch.float32
    assert as_tensor(tensor, dtype=torch.float64).dtype == torch.float64
    array = as_array(tensor.requires_grad_())
    assert array.dtype == np.float64
    np.testing.assert_array_equal(array, X)


def test_a_tensor_does_not_share_memory_with_private_records():
    X = np.zeros((2, 2), dtype=np.float32)
    as_tensor(X).add_(1)
    assert not X.any()


def test_seeded_initialization():
    def weights(seed):
        with seeded_initialization(seed):
            return torch.nn.Linear(3, 3).weight.tolist()

    state = torch.get_rng_state()
    assert weights(0) == weights(0) != weights(1)
    assert weights(None) != weights(None)
    assert torch.equal(torch.get_rng_state(), state)


def test_the_cpu_needs_no_pytorch(monkeypatch):
    expected = "cuda" if torch.cuda.is_available() else "cpu"
    assert device_name("auto") == expected
    assert device_name("cpu") == device_name(torch.device("cpu")) == "cpu"
    for device in ("nowhere", 99, None):
        with pytest.raises(ValueError, match="is not a device of this machine"):
            device_name(device)
    monkeypatch.setattr(_devices, "_has_driver", lambda: False)
    asked = []
    monkeypatch.setattr(_torch, "resolve_device", lambda device: asked.append(device) or "gpu")
    # Loaded, PyTorch is asked.
    assert device_name("auto") == "gpu"
    with monkeypatch.context() as patch:
        patch.delitem(sys.modules, "torch")
        assert device_name("auto") == device_name("cpu") == "cpu"
        assert asked == ["auto"]
        patch.setattr(_devices, "_has_driver", lambda: True)
        assert device_name("auto") == "gpu"
    assert asked == ["auto", "auto"]
