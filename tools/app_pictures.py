"""Drive the local page from a file to a signed folder, with a clock and a picture of each step.

It needs Chromium or Chrome, and what the tests need. ``doc/images`` has some of the pictures::

    python tools/app_pictures.py --output pictures
    python tools/app_pictures.py --doc      # replaces those of doc/images
"""

import argparse
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "app"))

from app_cases import (  # noqa: E402
    STAYS,
    VISITS,
    Drive,
    browsing,
    command,
    serving,
    write_keys,
    write_stays,
    write_visits,
)

__all__ = ["main"]

# Of the pictures those that the page of the documentation shows.
DOC = ("schema-wide-light", "plan-wide-light", "look-wide-dark", "fit-narrow-dark")
LOOKS = [(w, m) for w in ("wide", "narrow") for m in ("light", "dark")]
SIZES = {"wide": (1100, 820), "narrow": (390, 780)}
# The heading at the top of the picture of a step.
HEADS = {"file": "1. File", "schema": "2. Schema", "check": "3. Check"}
HEADS |= {"plan": "What will be seen", "fit": "5. Fit", "look": "6. Look", "release": "7. Release"}


def picture(person, name, output):
    """Write a picture of a step, in each width and mode."""
    page, step = person.page, name.partition("-")[0]
    for width, mode in LOOKS:
        page.set_viewport_size(dict(zip(("width", "height"), SIZES[width], strict=True)))
        page.evaluate("(mode) => { document.documentElement.dataset.bsTheme = mode }", mode)
        head = page.locator("h2, h3").filter(has_text=HEADS[step]).first
        head.evaluate("(own) => own.scrollIntoView({behavior: 'instant', block: 'start'})")
        page.wait_for_timeout(800)
        path = output / f"{name}-{width}-{mode}.png"
        page.screenshot(path=path)
        # Few colours are enough for text and bars, in a quarter of the bytes.
        Image.open(path).convert("RGB").quantize(128).save(path, optimize=True)
    page.set_viewport_size(dict(zip(("width", "height"), SIZES["wide"], strict=True)))


def drive(person, table, schema, rows, column, encoding, folder, key, see):
    """Go from a table to a release, and look at each step."""
    if encoding:
        person.fill("encoding", encoding)
    person.draft(table, folder)
    see("file")
    person.take(schema)
    person.said("gaps", "All is declared")
    see("schema")
    person.do("check")
    person.said("checked", "The table fits")
    see("check")
    person.fill("rows", rows)
    person.said("planned", "Epsilon")
    person.open_ledger("own.ledger")
    see("plan")
    person.fill("signing-key", str(key))
    person.fit()
    see("fit")
    person.page.locator("#look_ svg").first.wait_for()
    person.page.locator("#column").select_option(column)
    person.said("look_", column)
    see("look")
    see("release")


def main():
    """Write the pictures, and print the seconds of each way without them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--output", type=Path, default=Path("pictures"))
    parser.add_argument("--doc", action="store_true", help="replace the pictures of doc/images")
    arguments = parser.parse_args()
    arguments.output.mkdir(exist_ok=True, parents=True)
    with TemporaryDirectory() as name, browsing() as browser:
        home = Path(name)
        private, public = write_keys(home)
        stays, visits = write_stays(home / "stays.csv", 2000), write_visits(home / "tables")
        ways = {
            "hospital": (stays, STAYS, "1000", "Diagnose", "cp1252"),
            "visits": (visits, VISITS, "200", "patients.sex", ""),
        }
        for way, case in ways.items():
            start = time.monotonic()
            with serving(home) as (url, _):
                person = Drive(browser, url)
                spent = [0.0]

                def see(step, way=way, person=person, spent=spent):
                    began = time.monotonic()
                    suffix = "" if way == "hospital" else f"-{way}"
                    picture(person, step + suffix, arguments.output)
                    spent[0] += time.monotonic() - began

                folder = home / way
                drive(person, *case, folder, private, see)
                person.context.close()
            taken = time.monotonic() - start - spent[0]
            done = command("verify", folder / "release", "--public-key", public)
            print(
                f"{way}: {taken:.0f} s from the command to the signed folder; {done.stdout}",
                flush=True,
            )
            if arguments.doc and way == "hospital":
                for one in DOC:
                    path = arguments.output / f"{one}.png"
                    target = ROOT / "doc" / "images" / f"app_{one.partition('-')[0]}.png"
                    target.write_bytes(path.read_bytes())


if __name__ == "__main__":
    main()
