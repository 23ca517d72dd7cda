"""Sphinx configuration: ``python -m sphinx -W -b html doc <output>``; no network is needed."""

import doctest
import os
import re
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import sklearn_dpgen

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))
from addresses import is_known, read_addresses

# The gallery runs beside everything else: one thread is enough, and matplotlib opens no window.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MPLBACKEND", "agg")
# Workers of Spark and Ray run this Python, and ask nobody.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("RAY_AUTH_MODE", "disabled")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

project = "sklearn_dpgen"
author = "the sklearn_dpgen developers"
copyright = author
version = release = sklearn_dpgen.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.doctest",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
    "numpydoc",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
# Copied from sphinx-mathjax-offline: what the pages load of it, 2 of 24 MB.
mathjax_path = "mathjax/tex-chtml.js"
MATHJAX_PARTS = ("tex-chtml.js", "input/tex/extensions/", "output/chtml/fonts/")

# Names of other packages become links where a network is meant to be there, as for the public site.
if os.environ.get("DOC_INTERSPHINX"):
    extensions.append("sphinx.ext.intersphinx")
    intersphinx_mapping = {
        "python": ("https://docs.python.org/3", None),
        "numpy": ("https://numpy.org/doc/stable", None),
        "scipy": ("https://docs.scipy.org/doc/scipy", None),
        "pandas": ("https://pandas.pydata.org/docs", None),
        "sklearn": ("https://scikit-learn.org/stable", None),
        "torch": ("https://docs.pytorch.org/docs/stable", None),
    }

templates_path = ["_templates"]
exclude_patterns = ["_build", "_templates"]

# Prompts and output are not copied.
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
copybutton_exclude = ".linenos, .gp, .go"

autosummary_generate = True
toc_object_entries_show_parents = "hide"
autodoc_typehints = "none"
# Members are listed by the templates of autosummary.
numpydoc_show_class_members = False

# The pages are tests too: ``python -m sphinx -b doctest -D plot_gallery=0 doc <output>``.
doctest_test_doctest_blocks = ""
doctest_default_flags = doctest.NORMALIZE_WHITESPACE
# For blocks that need what is optional: ``:skipif: find_spec("ray") is None``.
# Each page writes its files to a folder that goes with it.
doctest_global_setup = """
import os as _os, tempfile as _tempfile
from importlib.util import find_spec
from shutil import which
_home, _folder = _os.getcwd(), _tempfile.TemporaryDirectory()
_os.chdir(_folder.name)
"""
doctest_global_cleanup = "_os.chdir(_home)\n_folder.cleanup()"

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "ignore_pattern": r"demo\.py$",
    "backreferences_dir": "generated/backreferences",
    "doc_module": ("sklearn_dpgen",),
    "abort_on_example_error": True,
    "capture_repr": (),
    "download_all_examples": False,
    "image_scrapers": ("matplotlib",),
    "reset_modules": ("matplotlib",),
    "show_memory": False,
    "write_computation_times": False,
    "show_signature": False,
}

html_theme = "pydata_sphinx_theme"
html_title = project
html_static_path = ["_static"]
html_css_files = ["custom.css"]
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {
    "logo": {"text": project},
    "navbar_start": ["navbar-logo", "version"],
    "navbar_align": "left",
    "navbar_end": ["theme-switcher"],
    "navbar_persistent": ["search-button"],
    "header_links_before_dropdown": 6,
    "show_nav_level": 1,
    "navigation_depth": 3,
    "show_toc_level": 2,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": ["theme-version"],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}

# Where the site is known to be, pages name their address and lead to those of other versions.
ADDRESS = read_addresses()["Documentation"]
if is_known(ADDRESS):
    html_baseurl = f"{ADDRESS}/"
    html_theme_options["navbar_start"] = ["navbar-logo", "version-switcher"]
    html_theme_options["switcher"] = {
        "json_url": f"{ADDRESS}/_static/switcher.json",
        "version_match": version,
    }
    # The file is read over the network, by readers alone.
    html_theme_options["check_switcher"] = False


def escape_fitted_attributes(app, what, name, obj, options, lines):
    """Keep reST from reading ``domain_.n_features`` in a shape as a link to a target ``domain``."""
    lines[:] = [re.sub(r"(?<!`)\b(\w+)_\.(?=\w)", r"\1\_.", line) for line in lines]


def name_rooms(app, pagename, templatename, context, doctree):
    """Mend links from sources to pages: all have the room of the first object of the module."""
    if pagename.startswith("_modules/"):
        links = r'(generated/(sklearn_dpgen\.\w+)\.[^"#]*\.html#)sklearn_dpgen\.\w+\.'
        context["body"] = re.sub(links, r"\1\2.", context["body"])


def copy_mathjax(app, exception):
    """Copy the parts of MathJax that pages load."""
    if exception or app.builder.format != "html":
        return
    source = Path(find_spec("sphinx-mathjax-offline").origin).parent / "static" / "mathjax"
    target = Path(app.outdir) / "_static" / "mathjax"
    for path in source.rglob("*"):
        name = path.relative_to(source).as_posix()
        if name.startswith(MATHJAX_PARTS) and path.is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target / name)


def setup(app):
    app.connect("build-finished", copy_mathjax)
    app.connect("html-page-context", name_rooms)
    app.connect("autodoc-process-docstring", escape_fitted_attributes, priority=400)
