"""Tables as they come out of a hospital, and a driver of the page in a browser."""

import contextlib
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd

_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
_FLAGS += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
SECONDS = 240

# What a person declares of the stays below, from public knowledge alone.
STAYS = """\
unit: Patient-ID
delimiter: ";"
encoding: cp1252
rules:
  - Aufnahme <= Entlassung
columns:
  Patient-ID: {type: identifier}
  Aufnahme:
    {type: datetime, low: 2020-01-01, high: 2024-12-31, resolution: D, format: "%d.%m.%Y"}
  Entlassung:
    {type: datetime, low: 2020-01-01, high: 2025-03-31, resolution: D, format: "%d.%m.%Y"}
  Alter: {type: numeric, low: 0, high: 110, integer: true, missing: [-999, unbekannt, "."]}
  Diagnose: {type: categorical, categories: [E00, E01, E02, I00, I01, J00], hierarchy: [1]}
  Kosten:
    {type: numeric, low: 0, high: 20000, step: 0.01, decimal: ",", thousands: ".", currency: 1 €}
  Station: {type: categorical, categories: [Innere, Chirurgie, Gynäkologie, "NO"]}
"""
VISITS = """\
tables:
  patients:
    columns:
      sex: {type: categorical, categories: [f, m]}
      born: {type: datetime, low: 1930-01-01, high: 2006-12-31, resolution: D}
    primary_key: patient
  visits:
    columns:
      start: {type: datetime, low: 2023-01-01, high: 2023-12-31, resolution: D}
      dose: {type: numeric, low: 0, high: 20, step: 0.5}
    foreign_key: {patient: patients}
    sequence_index: start
    max_rows: 3
"""
SECRET = "Befund 4711"


def write_stays(path, n=300):
    """Write stays of patients: semicolons, Windows-1252, money, and nulls in odd spellings."""
    rng = np.random.default_rng(0)
    start = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 1800, n), unit="D")
    end = start + pd.to_timedelta(rng.geometric(0.2, n), unit="D")
    age = rng.integers(18, 95, n).astype(str)
    age = np.where(rng.random(n) < 0.1, rng.choice(["", "-999", "unbekannt", "."], n), age)
    euros = [
        f"{cents // 100:,}".replace(",", ".") + f",{cents % 100:02d} €"
        for cents in rng.gamma(2, 100_000, n).astype(int).tolist()
    ]
    frame = pd.DataFrame(
        {
            "Patient-ID": [f"P{i:05d}" for i in rng.integers(0, n // 2, n)],
            "Aufnahme": start.strftime("%d.%m.%Y"),
            "Entlassung": end.strftime("%d.%m.%Y"),
            "Alter": age,
            "Diagnose": rng.choice(["E00", "E01", "E02", "I00", "I01", "J00"], n),
            "Kosten": euros,
            "Station": rng.choice(["Innere", "Chirurgie", "Gynäkologie", "NO"], n),
            "Notiz": [f'{SECRET} {i}; "stabil",\nweiter' for i in range(n)],
        }
    )
    frame.to_csv(path, sep=";", encoding="cp1252", index=False)
    return path


def write_visits(folder, n=200):
    """Write patients and their visits, one file each."""
    rng = np.random.default_rng(0)
    folder.mkdir()
    keys = np.array([f"K{i:04d}" for i in range(n)])
    born = pd.Timestamp("1930-01-01") + pd.to_timedelta(rng.integers(0, 28000, n), unit="D")
    patients = pd.DataFrame({"patient": keys, "sex": rng.choice(["f", "m"], n), "born": born})
    patients.to_csv(folder / "patients.csv", index=False)
    owners = np.repeat(np.arange(n), rng.integers(0, 4, n))
    days = pd.to_timedelta(rng.integers(0, 365, len(owners)), unit="D")
    visits = pd.DataFrame({"patient": keys[owners], "start": pd.Timestamp("2023-01-01") + days})
    visits["dose"] = rng.integers(0, 41, len(owners)) / 2
    visits.to_csv(folder / "visits.csv", index=False)
    return folder


def write_small(path, n=200):
    """Write a table that a person declares in the page within seconds."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.integers(18, 90, n), "ill": rng.choice(["no", "yes"], n)})
    frame.to_csv(path, index=False)
    return path


def write_keys(folder):
    """Make a pair of keys, and return the private and the public one."""
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    private, public = folder / "key.pem", folder / "public.pem"
    private.touch(mode=0o600)
    plain = form.NoEncryption()
    private.write_bytes(key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, plain))
    public.write_bytes(
        key.public_key().public_bytes(form.Encoding.PEM, form.PublicFormat.SubjectPublicKeyInfo)
    )
    return private, public


def charges(ledger):
    """Return the number of charges of a ledger, as its file states it."""
    if not Path(ledger).exists():
        return 0
    with contextlib.closing(sqlite3.connect(f"file:{ledger}?mode=ro", uri=True)) as file:
        return file.execute("SELECT count(*) FROM charges").fetchone()[0]


def find_browser():
    """Return the path of a Chromium or Chrome, or None."""
    return next(filter(None, map(shutil.which, _BROWSERS)), None)


@contextlib.contextmanager
def serving(folder, environment=None):
    """Run the command in a folder, and yield its address and its process."""
    command = [sys.executable, "-m", "sklearn_dpgen", "app", "--no-browser", "--port", "0"]
    with subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            line = process.stdout.readline()
            found = re.search(r"http://127\.0\.0\.1:\d+/\S+", line)
            if found is None:
                process.terminate()
                raise AssertionError(line + process.stderr.read())
            yield found[0], process
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.out, process.err = process.communicate(timeout=60)
            except subprocess.TimeoutExpired:
                process.kill()
                raise


@contextlib.contextmanager
def browsing():
    """Run a browser."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_browser(), args=_FLAGS)
        try:
            yield browser
        finally:
            browser.close()


class Drive:
    """A person with a browser.

    Parameters
    ----------
    browser : playwright Browser
    url : str
    context : playwright BrowserContext, optional
        That of another tab, which shares its cookies.
    """

    def __init__(self, browser, url, *, context=None, **options):
        options = {"viewport": {"width": 1280, "height": 900}} | options
        self.context = context or browser.new_context(**options)
        self.context.set_default_timeout(1000 * SECONDS)
        self.page = self.context.new_page()
        self.requests, self.errors = [], []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("websocket", lambda socket: self.requests.append(socket.url))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", self._hear)
        self.page.goto(url)
        self.ready()

    def _hear(self, message):
        # The policy refuses two scripts of Shiny, which the page does not need.
        if message.type == "error" and not message.text.startswith("Executing inline script"):
            self.errors.append(message.text)

    def ready(self):
        """Wait until the page is connected and shows its parts."""
        self.page.wait_for_selector("#lines")

    def fill(self, name, text):
        """Type a text into a field, and leave it."""
        field = self.page.locator(f"#{name}")
        for details in field.locator("xpath=ancestor::details[not(@open)]").all():
            details.locator("summary").first.click()
        field.fill(text)
        field.blur()

    def do(self, act):
        """Press a button."""
        self.page.locator(f'[data-do="{act}"]').first.click()

    def said(self, part, words):
        """Wait until a part of the page says something, and return its text."""
        own = self.page.locator(f"#{part}")
        own.filter(has_text=re.compile(words)).wait_for()
        return own.inner_text()

    def until(self, holds):
        """Wait until something holds; the policy of the page forbids to evaluate texts there."""
        end = time.monotonic() + SECONDS
        while not holds():
            assert time.monotonic() < end
            self.page.wait_for_timeout(50)

    def draft(self, file, folder, words="Done|There is no"):
        """Draft the schema of a file."""
        self.fill("file", str(file))
        self.fill("folder", str(folder))
        self.do("draft")
        return self.said("drafted", words)

    def column(self, name):
        """Return the row of a column."""
        return self.page.locator(f'tr[data-column="{name}"]')

    def declare(self, name, kind, **fields):
        """Choose the type of a column, and fill its fields."""
        row = self.column(name)
        row.locator('[data-edit="type"]').select_option(kind)
        for field, value in fields.items():
            own = row.locator(f'[data-edit="{field}"]')
            own.wait_for(state="attached")
            for details in own.locator("xpath=ancestor::details[not(@open)]").all():
                details.locator("summary").click()
            if own.evaluate("(own) => own.tagName") == "SELECT":
                own.select_option(value)
            else:
                own.fill(value)
                own.blur()

    def take(self, text, words="Done"):
        """Give the schema as a text."""
        if self.page.locator("#as-text").get_attribute("open") is None:
            self.page.locator("#as-text > summary").click()
        self.page.locator("#yaml").fill(text)
        self.do("text")
        return self.said("text_", words)

    def set_epsilon(self, value):
        """Move the range, as its keys do."""
        own = self.page.locator("#epsilon")
        own.fill(str(value))

    def open_ledger(self, name, cap="3", words="Cap: epsilon"):
        """Create a ledger, or open one."""
        self.fill("ledger", str(name))
        self.fill("cap", cap)
        self.do("ledger")
        return self.said("ledger_", words)

    def fit(self, words=r"Done\.|has failed|Not started"):
        """Press the button of the fit, and wait for its end."""
        self.do("fit")
        return self.said("fit_", words)

    def foreign(self):
        """Return the requests to another host than this machine."""
        near = re.compile(r"(https?|ws)://127\.0\.0\.1:\d+/|data:|blob:|about:")
        return [url for url in self.requests if not near.match(url)]


def command(*argv, folder=None):
    """Return the finished command of the command line."""
    return subprocess.run(
        [sys.executable, "-m", "sklearn_dpgen", *map(str, argv)],
        cwd=folder,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )


# Of a task of Shiny that waits when its program is told to end.
_CANCELLED = re.compile(
    r"^Traceback \(most recent call last\):\n(?: .*\n)+asyncio\.exceptions\.CancelledError\n", re.M
)


def tracebacks(text):
    """Return what a program said from its first traceback on, but for those of its end."""
    return "".join(_CANCELLED.sub("", text).partition("Traceback")[1:])
