"""The command app: a page in the browser of this machine."""

import importlib

from sklearn_dpgen.command_line._console import Console
from sklearn_dpgen.command_line._options import add_command, at_least

_TEXT = """\
Open a page in the browser that leads from a file to a release.

The page is served to this machine alone, at an address with a random token, and loads nothing from
elsewhere. Files stay where they are.
"""


def add_to(commands) -> None:
    """Add the command."""
    app = add_command(
        commands,
        "app",
        run_app,
        summary="open a page in the browser that leads from a file to a release",
        text=_TEXT,
        examples="  sklearn-dpgen app\n  sklearn-dpgen app --no-browser --port 8000\n",
    )
    app.add_argument(
        "--port", type=at_least(0), default=0, metavar="N", help="port (default: a free one)"
    )
    app.add_argument("--no-browser", action="store_true", help="only print the address")


def run_app(arguments, console: Console) -> int:
    """Serve the page until it is interrupted."""
    # The page runs commands, and stands above them: it is named, and not imported.
    importlib.import_module("sklearn_dpgen.app").serve(
        arguments.port,
        opens=not arguments.no_browser,
        ready=lambda url: console.result(f"Open {url}\nTo stop: Ctrl+C.", {"url": url}),
    )
    return 0
