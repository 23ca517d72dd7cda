"""Canonical JSON, digests and Ed25519 signatures of cards and of lists of releases."""

import hashlib
import json
from pathlib import Path

from sklearn_dpgen.exceptions import PublicImportError, PublicTypeError, PublicValueError

__all__ = ["canonical_json", "file_facts", "sha256", "sign", "verify_signature"]

# Prefix of the signed bytes: the signature of a card is not valid for other content.
_CONTEXT = b"sklearn_dpgen model card 1\n"


def canonical_json(content):
    """Return the canonical JSON of plain containers.

    Parameters
    ----------
    content : dict, list, str, int, float, bool or None

    Returns
    -------
    bytes
        Keys sorted, no spaces, UTF-8; floats in their shortest exact form.

    Raises
    ------
    ValueError
        A number is not finite.
    """
    text = json.dumps(
        content, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return text.encode("utf-8")


def sha256(content):
    """Return the SHA-256 of bytes in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def file_facts(path):
    """Return the name, the size in bytes and the SHA-256 of a file."""
    path = Path(path)
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
        size = stream.tell()
    return {"name": path.name, "bytes": size, "sha256": digest}


def sign(content, key, context=_CONTEXT):
    """Return the Ed25519 signature of bytes as a dict, for :func:`verify_signature`."""
    ed25519, serialization = _cryptography()
    key = _read_key(key, ed25519.Ed25519PrivateKey, serialization)
    raw = serialization.Encoding.Raw, serialization.PublicFormat.Raw
    return {
        "algorithm": "Ed25519",
        "public_key": key.public_key().public_bytes(*raw).hex(),
        "value": key.sign(context + content).hex(),
    }


def verify_signature(content, signature, key, context=_CONTEXT):
    """Raise ValueError unless the bytes were signed with the private key of ``key``."""
    if not isinstance(signature, dict) or signature.get("algorithm") != "Ed25519":
        raise PublicValueError("The card has no Ed25519 signature.")
    ed25519, serialization = _cryptography()
    from cryptography.exceptions import InvalidSignature

    key = _read_key(key, ed25519.Ed25519PublicKey, serialization)
    raw = serialization.Encoding.Raw, serialization.PublicFormat.Raw
    # The fields beside the value are shown by a card, and no signature covers them.
    named = {"algorithm": "Ed25519", "public_key": key.public_bytes(*raw).hex()}
    if signature != named | {"value": signature.get("value")}:
        raise PublicValueError(
            "The card names another key than this one, or more of its signature."
        )
    try:
        value = bytes.fromhex(signature["value"])
        key.verify(value, context + content)
    except (InvalidSignature, KeyError, TypeError, ValueError):
        raise PublicValueError(
            "The card was not signed with this key, or was changed since."
        ) from None


def _cryptography():
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError as error:
        raise PublicImportError(
            "Signatures require cryptography: pip install 'sklearn-dpgen[sign]'."
        ) from error
    return ed25519, serialization


def _read_key(key, kind, serialization):
    """Return a private or public key from a key, its raw bytes, or the path of a PEM file."""
    is_private = kind.__name__ == "Ed25519PrivateKey"
    if isinstance(key, bytes):
        if len(key) != 32:
            raise PublicValueError("A raw key must have 32 bytes.")
        return kind.from_private_bytes(key) if is_private else kind.from_public_bytes(key)
    if not isinstance(key, kind):
        content = Path(key).read_bytes()
        key = (
            serialization.load_pem_private_key(content, password=None)
            if is_private
            else serialization.load_pem_public_key(content)
        )
    if not isinstance(key, kind):
        raise PublicTypeError(f"The key must be an {kind.__name__}.")
    return key
