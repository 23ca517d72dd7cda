"""Sphinx configuration: ``python -m sphinx -W -b html doc <output>``; no network is needed."""

import doctest
import os
import re

import sklearn_dpgen

# The gallery runs beside everything else: one thread is enough, and matplotlib opens no window.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MPLBACKEND", "agg")

project = "sklearn_dpgen"
author = "the sklearn_dpgen developers"
copyright = author
version = release = sklearn_dpgen.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.doctest",
    "sphinx.ext.mathjax",
    "numpydoc",
    "sphinx_gallery.gen_gallery",
]
templates_path = ["_templates"]
exclude_patterns = ["_build", "_templates"]

autosummary_generate = True
autodoc_typehints = "none"
# Members are listed by the templates of autosummary.
numpydoc_show_class_members = False

# The pages are tests too: ``python -m sphinx -b doctest -D plot_gallery=0 doc <output>``.
doctest_test_doctest_blocks = ""
doctest_default_flags = doctest.NORMALIZE_WHITESPACE
# For blocks that need what is optional: ``:skipif: find_spec("ray") is None``.
doctest_global_setup = "from importlib.util import find_spec\nfrom shutil import which"

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "abort_on_example_error": True,
    "capture_repr": (),
    "download_all_examples": False,
    "image_scrapers": ("matplotlib",),
    "reset_modules": ("matplotlib",),
    "show_memory": False,
    "show_signature": False,
}

html_theme = "alabaster"
html_static_path = ["_static"]
html_show_sourcelink = False
html_theme_options = {
    "description": "Generators and fair predictors learned from private data by optimal transport",
    "fixed_sidebar": True,
    "page_width": "1060px",
    "sidebar_width": "220px",
    "font_size": "16px",
    "show_powered_by": False,
}
html_sidebars = {"**": ["about.html", "searchfield.html", "navigation.html"]}


def escape_fitted_attributes(app, what, name, obj, options, lines):
    """Keep reST from reading ``domain_.n_features`` in a shape as a link to a target ``domain``."""
    lines[:] = [re.sub(r"(?<!`)\b(\w+)_\.(?=\w)", r"\1\_.", line) for line in lines]


def setup(app):
    app.connect("autodoc-process-docstring", escape_fitted_attributes, priority=400)
