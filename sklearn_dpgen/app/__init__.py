"""A page in the browser of this machine, from a file to a release."""

from sklearn_dpgen.app._server import serve

__all__ = ["serve"]
