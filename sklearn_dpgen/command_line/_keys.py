"""Keys of signatures, in PEM."""

from pathlib import Path
from typing import Any

from sklearn_dpgen.command_line._errors import CommandError

__all__ = ["read_key"]


def read_key(path: str, *, private: bool) -> Any:
    """Read an Ed25519 key; errors show nothing of it.

    Parameters
    ----------
    path : str
        In PEM, without a password.
    private : bool
        Whether it is to sign with, or to verify.

    Raises
    ------
    CommandError
        What is no such key, or without the package cryptography.
    """
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise CommandError(
            "Signatures need cryptography: pip install 'sklearn-dpgen[sign]'."
        ) from None
    content = Path(path).read_bytes()
    try:
        if private:
            key = serialization.load_pem_private_key(content, password=None)
        else:
            key = serialization.load_pem_public_key(content)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, ed25519.Ed25519PrivateKey if private else ed25519.Ed25519PublicKey):
        kind = "private" if private else "public"
        raise CommandError(f"{path} is no {kind} key of Ed25519 in PEM, without a password.")
    return key
