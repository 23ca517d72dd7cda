"""Names of devices, found without importing PyTorch where none but the CPU can be meant."""

import ctypes
import os
import sys

__all__ = ["device_name"]

# PyTorch has a GPU only with a driver: of NVIDIA on Linux and Windows, or of AMD.
_LIBRARIES = ("libcuda.so.1", "nvcuda.dll")
_AMD = "/dev/kfd"


def device_name(device="auto"):
    """Return the name of a device as PyTorch gives it; "auto" is a GPU if there is one, else "cpu".

    Raises
    ------
    PublicValueError
        The device does not exist on this machine.
    """
    if isinstance(device, str) and (
        device == "cpu" or (device == "auto" and "torch" not in sys.modules and not _has_driver())
    ):
        return "cpu"
    from sklearn_dpgen.utils._torch import resolve_device

    return str(resolve_device(device))


def _has_driver():
    for name in _LIBRARIES:
        try:
            ctypes.CDLL(name)
        except OSError:
            continue
        return True
    return os.path.exists(_AMD)
