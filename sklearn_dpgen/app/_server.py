"""The server of the page: this machine alone, with a token, and nothing from elsewhere."""

import importlib
import secrets
import signal
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable
from typing import Any

from sklearn_dpgen.exceptions import PublicImportError

__all__ = ["Guard", "serve"]

_HOST = "127.0.0.1"
# Styles stand in the pictures and in the page of Shiny; nothing comes from elsewhere.
_POLICY = (
    "default-src 'self'; script-src 'self'; object-src 'none'; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self' data:; "
    "connect-src 'self'; frame-ancestors 'none'; form-action 'self'; base-uri 'self'"
)


class Guard:
    """An ASGI application that lets only the browser with the token reach another.

    Parameters
    ----------
    app : ASGI application
    token : str
        Once in the address, and then in a cookie.
    port : int
        A request must name this machine and port as its host, so that no name of another site can
        be bound to this address; and as its origin, if it has one.
    """

    def __init__(self, app: Callable, token: str, port: int) -> None:
        self.app, self.token = app, token
        self.hosts = {f"{_HOST}:{port}", f"localhost:{port}"}
        # Cookies are shared by the ports of a host.
        self.cookie = f"sklearn-dpgen-{port}"

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)
        headers: dict[str, list[str]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.decode("latin-1"), []).append(value.decode("latin-1"))
        is_socket = scope["type"] == "websocket"
        hosts, origins = headers.get("host", []), headers.get("origin", [])
        is_own = len(hosts) == 1 and hosts[0] in self.hosts
        # A browser always names the origin of a websocket, and of a request that changes anything.
        needs_origin = is_socket or scope["method"] not in ("GET", "HEAD")
        if is_own and (origins or needs_origin):
            is_own = origins == [f"http://{hosts[0]}"]
        if is_own and self._is_known(headers.get("cookie", [])):
            return await self.app(scope, receive, send if is_socket else self._with_policy(send))
        # A message hides what stands behind a question mark, so the token is a path.
        given = scope["path"][1:]
        if is_own and not is_socket and secrets.compare_digest(given.encode(), self.token.encode()):
            return await self._welcome(send)
        return await self._refuse(is_socket, receive, send)

    def _is_known(self, texts):
        # Cookies of other programs on this host come too, and a strict parser stops at an odd one.
        own = f"{self.cookie}={self.token}".encode()
        given = (part.strip().encode() for text in texts for part in text.split(";"))
        return any(secrets.compare_digest(part, own) for part in given)

    async def _welcome(self, send):
        """Move the token from the address to a cookie that no script and no other site sees."""
        cookie = f"{self.cookie}={self.token}; HttpOnly; SameSite=Strict; Path=/"
        head = [
            (b"location", b"/"),
            (b"set-cookie", cookie.encode()),
            (b"cache-control", b"no-store"),
        ]
        await send({"type": "http.response.start", "status": 303, "headers": head})
        await send({"type": "http.response.body", "body": b""})

    async def _refuse(self, is_socket, receive, send):
        if is_socket:
            await receive()
            return await send({"type": "websocket.close", "code": 1008})
        # A browser sends the cookie to no page that another site has linked.
        text = (
            b"Paste the address that sklearn-dpgen app has printed, with its token, into the "
            b"address bar. A link from another page does not open it."
        )
        head = [(b"content-type", b"text/plain; charset=utf-8")]
        await send({"type": "http.response.start", "status": 403, "headers": head})
        return await send({"type": "http.response.body", "body": text})

    def _with_policy(self, send):
        async def wrapped(message):
            if message["type"] == "http.response.start":
                # A file of a release has a policy of its own.
                own = [name for name, _ in message["headers"]]
                is_own = b"content-security-policy" in own
                policy = [] if is_own else [(b"content-security-policy", _POLICY.encode())]
                message = message | {
                    "headers": [
                        *message["headers"],
                        *policy,
                        (b"referrer-policy", b"no-referrer"),
                        # A cache of the browser is on the disk, and the page may be private.
                        (b"cache-control", b"no-store"),
                        (b"x-content-type-options", b"nosniff"),
                    ]
                }
            await send(message)

        return wrapped


def serve(port: int = 0, *, opens: bool = True, ready: Callable[[str], Any] = print) -> None:
    """Serve the page until an interrupt.

    Parameters
    ----------
    port : int, default=0
        0 takes a free one.
    opens : bool, default=True
        Whether to open a browser.
    ready : callable
        Takes the address, with the token.

    Raises
    ------
    ImportError
        Shiny is not installed.
    """
    try:
        import uvicorn

        from sklearn_dpgen.app._page import make_app
    except ImportError as error:
        text = 'The page needs: pip install "sklearn-dpgen[app]".'
        raise PublicImportError(text) from error

    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((_HOST, port))
        # A browser that opens the address at once waits for the server.
        listener.listen()
        port, token = listener.getsockname()[1], secrets.token_urlsafe(32)
        app, close = make_app()
        config = uvicorn.Config(
            Guard(app, token, port), log_level="error", access_log=False, server_header=False
        )
        url = f"http://{_HOST}:{port}/{token}"
        # The first command needs it, and the page is there before.
        threading.Thread(target=importlib.import_module, args=["sklearn_dpgen.tables"]).start()
        ready(url)
        if opens:
            webbrowser.open(url)
        if threading.current_thread() is threading.main_thread():
            # The server raises this signal again when it has ended: a fit is then stopped.
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        try:
            uvicorn.Server(config).run(sockets=[listener])
        finally:
            close()
