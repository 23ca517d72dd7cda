"""Who reaches the page: the browser with the token on this machine, and nobody else.

Each refusal has a twin: a guard without this check lets the same request pass, so that the test
would notice the loss of the check.
"""

import asyncio
import sys

import pytest

from sklearn_dpgen.app import _server
from sklearn_dpgen.command_line import main

PORT, TOKEN = 8123, "a-token-of-the-test"
OWN = f"127.0.0.1:{PORT}"
COOKIE = f"sklearn-dpgen-{PORT}={TOKEN}"


class Everything:
    """A collection that has everything."""

    def __contains__(self, _):
        return True


class AnyOrigin(_server.Guard):
    """A guard that does not look at origins."""

    async def __call__(self, scope, receive, send):
        headers = [h for h in scope["headers"] if h[0] != b"origin"]
        hosts = [value for name, value in headers if name == b"host"]
        headers += [(b"origin", b"http://" + host) for host in hosts]
        await super().__call__(scope | {"headers": headers}, receive, send)


class AnyToken(_server.Guard):
    """A guard that does not look at cookies."""

    def _is_known(self, _):
        return True


def any_host(app, token, port):
    """Return a guard that does not look at the host."""
    guard = _server.Guard(app, token, port)
    guard.hosts = Everything()
    return guard


def ask(guard=_server.Guard, path="/", method="GET", kind="http", query=b"", **headers):
    """Return whether a request reaches the application, and the messages that come back."""
    reached, sent = [], []

    async def app(scope, receive, send):
        reached.append(scope["path"])
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"private"})

    async def receive():
        return {"type": "websocket.connect" if kind == "websocket" else "http.request"}

    async def send(message):
        sent.append(message)

    given = {"host": OWN} | headers
    pairs = [
        (name.encode(), value.encode())
        for name, values in given.items()
        for value in (values if isinstance(values, list) else [values])
    ]
    scope = {"type": kind, "path": path, "headers": pairs, "query_string": query}
    scope |= {"method": method} if kind == "http" else {}
    asyncio.run(guard(app, TOKEN, PORT)(scope, receive, send))
    return bool(reached), sent


def status(sent):
    return sent[0]["status"]


FOREIGN = ["http://example.org", f"http://{OWN}.example.org", f"https://{OWN}", "null", ""]
FOREIGN += ["http://127.0.0.1", f"http://127.0.0.1:{PORT + 1}", f"http://localhost:{PORT}"]
HOSTS = ["example.org", f"example.org:{PORT}", "127.0.0.1", f"127.0.0.1:{PORT + 1}", ""]
HOSTS += [f"[::1]:{PORT}", f"{OWN}.example.org", [OWN, OWN], []]
REFUSED = {
    "no token": (AnyToken, {}),
    "a wrong token as path": (AnyToken, {"path": "/another"}),
    "a prefix of the token": (AnyToken, {"path": f"/{TOKEN[:-1]}"}),
    "the token in the query": (AnyToken, {"query": f"token={TOKEN}".encode()}),
    "a wrong cookie": (AnyToken, {"cookie": f"sklearn-dpgen-{PORT}=another"}),
    "the cookie of another port": (AnyToken, {"cookie": f"sklearn-dpgen-{PORT + 1}={TOKEN}"}),
    "an empty cookie": (AnyToken, {"cookie": f"sklearn-dpgen-{PORT}="}),
    "no cookie at all": (AnyToken, {"cookie": "; ; ="}),
    "a file without a cookie": (AnyToken, {"path": "/report/x"}),
    "a websocket without a cookie": (
        AnyToken,
        {"kind": "websocket", "path": "/websocket/", "origin": f"http://{OWN}"},
    ),
    "POST without an origin": (AnyOrigin, {"method": "POST", "cookie": COOKIE}),
    "a websocket without an origin": (AnyOrigin, {"kind": "websocket", "cookie": COOKIE}),
    "two origins": (AnyOrigin, {"origin": [f"http://{OWN}", "http://a.b"], "cookie": COOKIE}),
}
REFUSED |= {f"host {host}": (any_host, {"host": host, "cookie": COOKIE}) for host in HOSTS[:-2]}
for origin in FOREIGN:
    one = {"origin": origin, "cookie": COOKIE}
    REFUSED[f"origin {origin}"] = (AnyOrigin, one)
    REFUSED[f"POST, origin {origin}"] = (AnyOrigin, one | {"method": "POST"})
    REFUSED[f"websocket, origin {origin}"] = (AnyOrigin, one | {"kind": "websocket"})


@pytest.mark.parametrize(("twin", "request_"), REFUSED.values(), ids=REFUSED)
def test_refused_before_it_reaches_the_page(twin, request_):
    reached, sent = ask(**request_)
    assert not reached
    if request_.get("kind") == "websocket":
        # A websocket that is closed before it is accepted was never open.
        assert [m["type"] for m in sent] == ["websocket.close"]
    else:
        assert status(sent) == 403
        assert b"private" not in sent[1]["body"]
        assert TOKEN.encode() not in repr(sent).encode()
    assert ask(guard=twin, **request_)[0], "the twin must let it pass, else it shows nothing"


@pytest.mark.parametrize("host", HOSTS[-2:], ids=["two", "none"])
@pytest.mark.parametrize("more", [{}, {"method": "POST"}, {"origin": f"http://{OWN}"}], ids=repr)
def test_a_request_has_one_host(host, more):
    reached, sent = ask(host=host, cookie=COOKIE, **more)
    assert not reached
    assert status(sent) == 403


ALLOWED = {
    "a page": {},
    "a page by name": {"host": f"localhost:{PORT}"},
    "POST": {"method": "POST", "origin": f"http://{OWN}"},
    "a websocket": {"kind": "websocket", "origin": f"http://{OWN}"},
    "cookies of others": {"cookie": f"other=1; {COOKIE}; sklearn-dpgen-1=a"},
    # Other programs on this host set them, and browsers send them as they are.
    "a cookie of JSON": {"cookie": f'other={{"a": 1}}; {COOKIE}'},
    "a cookie without a name": {"cookie": f"other; {COOKIE}"},
    "cookies with odd names": {"cookie": [f"a[b]@=\xe9; {COOKIE}", "x=y z"]},
    "an older cookie of the same port": {"cookie": f"{COOKIE}; {COOKIE[:-1]}"},
}


@pytest.mark.parametrize("request_", ALLOWED.values(), ids=ALLOWED)
def test_the_browser_with_the_cookie_reaches_the_page(request_):
    assert ask(**({"cookie": COOKIE} | request_))[0]


def test_the_token_of_the_address_becomes_a_cookie_that_scripts_do_not_see():
    reached, sent = ask(path=f"/{TOKEN}")
    headers = dict(sent[0]["headers"])
    assert not reached
    assert status(sent) == 303
    cookie = headers[b"set-cookie"].decode()
    assert cookie.startswith(COOKIE)
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(cookie.split("; "))
    assert TOKEN not in headers[b"location"].decode()
    assert headers[b"cache-control"] == b"no-store"


@pytest.mark.parametrize(
    "request_",
    [
        {"host": f"example.org:{PORT}"},
        {"method": "POST"},
        {"origin": "http://example.org"},
        {"origin": "null"},
        {"kind": "websocket", "origin": f"http://{OWN}"},
    ],
    ids=repr,
)
def test_the_token_alone_does_not_help_another_site(request_):
    reached, sent = ask(path=f"/{TOKEN}", **request_)
    assert not reached
    assert b"set-cookie" not in repr(sent).encode()


def test_pages_may_load_nothing_from_elsewhere():
    _, sent = ask(cookie=COOKIE)
    headers = dict(sent[0]["headers"])
    policy = dict(
        part.strip().split(" ", 1)
        for part in headers[b"content-security-policy"].decode().split(";")
    )
    assert policy["default-src"] == policy["script-src"] == "'self'"
    assert policy["frame-ancestors"] == "'none'"
    sources = {source for value in policy.values() for source in value.split()}
    assert sources <= {"'self'", "'none'", "'unsafe-inline'", "data:", "blob:"}
    assert headers[b"cache-control"] == b"no-store"
    assert headers[b"referrer-policy"] == b"no-referrer"
    assert headers[b"x-content-type-options"] == b"nosniff"


def test_without_the_extra_the_command_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert main(["app", "--no-browser"]) == 2
    assert 'pip install "sklearn-dpgen[app]"' in capsys.readouterr().err
