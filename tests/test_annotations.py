"""Every parameter and return of the public functions, classes and methods has a type hint."""

import ast
import functools
import inspect
import sys
import typing
from importlib import import_module
from pathlib import Path

import pytest

import sklearn_dpgen
from sklearn_dpgen.nn._jacobian import ClippedJacobianSum

ROOT = Path(sklearn_dpgen.__file__).parent
MODULES = sorted(
    f"sklearn_dpgen.{path.stem}"
    for path in ROOT.iterdir()
    if not path.name.startswith("_") and (path.suffix == ".py" or (path / "__init__.py").exists())
)


def is_own(thing):
    return getattr(thing, "__module__", "").split(".")[0] == "sklearn_dpgen"


def underlying(member):
    """Return the function of a method, a property or a decorated function; None of anything else.

    What the package does not define, such as the initializer of a dataclass, is left out.
    """
    if isinstance(member, classmethod | staticmethod):
        member = member.__func__
    elif isinstance(member, property):
        member = member.fget
    elif isinstance(member, functools.cached_property):
        member = member.func
    member = inspect.unwrap(member) if callable(member) else member
    if not inspect.isfunction(member) or member.__code__.co_filename == "<string>":
        return None
    return member


def methods(cls):
    """Yield what a class offers: initializer, call, public methods and properties, bases' too."""
    for base in filter(is_own, cls.__mro__):
        for name, member in vars(base).items():
            if not name.startswith("_") or name in ("__init__", "__call__"):
                function = underlying(member)
                if function is not None and is_own(function):
                    yield function


def public_names(module):
    names = getattr(module, "__all__", None)
    return [n for n in vars(module) if not n.startswith("_")] if names is None else names


def public_functions():
    """Return the public functions and methods, each once."""
    found = {}
    for name in MODULES:
        module = import_module(name)
        for thing in (getattr(module, public) for public in public_names(module)):
            if inspect.isclass(thing):
                found |= dict.fromkeys(methods(thing))
            elif callable(thing) and underlying(thing) is not None:
                found[underlying(thing)] = None
    return list(found)


def without_hint(function):
    """Return the names of the parameters without a hint, and "return"."""
    signature = inspect.signature(function, follow_wrapped=False)
    names = [
        parameter.name
        for position, parameter in enumerate(signature.parameters.values())
        if parameter.annotation is parameter.empty
        and (position > 0 or parameter.name not in ("self", "cls"))
    ]
    return names + ["return"] * (signature.return_annotation is signature.empty)


@functools.cache
def type_checking_names(module):
    """Return what a module imports for type checkers only."""
    names = {}
    for node in ast.parse(inspect.getsource(sys.modules[module])).body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            exec(compile(ast.Module(node.body, []), module, "exec"), names)
    return names


def resolve(function):
    """Evaluate the hints of a function where they are written; a NameError if one names nothing."""
    return typing.get_type_hints(function, localns=type_checking_names(function.__module__))


FUNCTIONS = public_functions()
NAMES = [f"{function.__module__}.{function.__qualname__}" for function in FUNCTIONS]


@pytest.mark.parametrize("function", FUNCTIONS, ids=NAMES)
def test_every_parameter_and_return_has_a_hint_that_resolves(function):
    assert without_hint(function) == []
    resolve(function)


def test_public_functions_are_found():
    found = {name.removeprefix("sklearn_dpgen.") for name in NAMES}
    assert {
        # A function, what a public class inherits from a private one, and what is decorated.
        "accounting._calibration.gaussian_sigma",
        "evolution._voting_sampler.VotingSampler.sample",
        "sliced._regressor.DPSlicedWassersteinFairRegressor.__init__",
        "sliced._encoder.DPSlicedWassersteinFairEncoder.fit",
        # A property, a class method.
        "schema._schema.Schema.domain",
        "schema._schema.Schema.from_yaml",
    } <= found
    assert ClippedJacobianSum.__call__ in methods(ClippedJacobianSum)
    assert len(found) == len(NAMES)


class Bare:
    def __init__(self, epsilon, *, delta=0.1):
        self.epsilon, self.delta = epsilon, delta

    def fit(self, X, y: object = None):
        return self

    @property
    def scale(self):
        return 1.0

    @classmethod
    def of(cls, *args, **options: float) -> "Bare":
        return cls(*args, **options)


def bare(X, scale: float, *rest):
    return X


def unknown(X: "NoSuchType") -> None:  # noqa: F821
    pass


def test_what_lacks_a_hint_is_caught():
    assert without_hint(bare) == ["X", "rest", "return"]
    assert without_hint(Bare.__init__) == ["epsilon", "delta", "return"]
    assert without_hint(Bare.fit) == ["X", "return"]
    assert without_hint(underlying(vars(Bare)["scale"])) == ["return"]
    assert without_hint(underlying(vars(Bare)["of"])) == ["args"]
    assert without_hint(unknown) == []
    with pytest.raises(NameError, match="NoSuchType"):
        resolve(unknown)
