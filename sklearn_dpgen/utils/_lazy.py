"""Public names of a package, each imported when it is first used."""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

__all__ = ["lazy_names"]


def lazy_names(
    package: str, modules: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the ``__getattr__`` and ``__dir__`` of a package whose names are imported late.

    A package lists its names three times: for type checkers and editors as imports under
    ``TYPE_CHECKING``, for readers in ``__all__``, and here.

    Parameters
    ----------
    package : str
        Its ``__name__``.
    modules : mapping of str to sequence of str
        The public names by the module that defines them.
    """
    places = {name: module for module, names in modules.items() for name in names}

    def __getattr__(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(places[name]), name)

    def __dir__() -> list[str]:
        return sorted({*vars(import_module(package)), *places})

    return __getattr__, __dir__
