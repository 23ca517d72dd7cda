"""The page in a browser: messages at their fields, names of columns, keyboard, contrast, width."""

import csv
import re

import pytest
from app_cases import charges, write_small

pytestmark = pytest.mark.slow

# For each mistake the field, what is typed, the button, and words of the message.
FILES = [
    ("file", "/none/at-all.csv", "draft", "There is no table"),
    ("more", "people.csv", "draft", "NAME=FILE"),
    ("codebook", "/none/book.csv", "draft", "No such file"),
    ("folder", "/dev/null/out", "draft", "Not a directory"),
]
VALUES = [
    ("delta", "small", "plan", "between 0 and 1"),
    ("delta", "1", "plan", "between 0 and 1"),
    ("rows", "many", "plan", "integer of at least 1"),
    ("rows", "-5", "plan", "integer of at least 1"),
    ("ledger", "/none/own.ledger", "ledger", "no ledger"),
]


def mistake(person, name, value, act, words):
    """Type something into a field, press a button, and find the message at the field."""
    before = person.page.locator(f"#{name}").input_value()
    person.fill(name, value)
    person.do(act)
    field, note = (person.page.locator(f"#{part}") for part in (name, f"{name}-fault"))
    # The plan of a value before may end first, and takes back its own message.
    person.until(
        lambda: field.get_attribute("aria-invalid") and re.search(words, note.inner_text())
    )
    assert f"{name}-fault" in field.get_attribute("aria-describedby").split()
    assert "Traceback" not in person.page.inner_text("body")
    person.fill(name, before)


def test_messages_stand_at_their_fields_and_the_page_goes_on(person, tmp_path):
    source = write_small(tmp_path / "people.csv")
    person.fill("file", str(source))
    person.fill("folder", str(tmp_path / "out"))
    for one in FILES:
        mistake(person, *one)
    person.draft(source, tmp_path / "out", "Done")
    # In a row of the schema.
    person.said("c0-note", "To declare: low, high")
    person.declare("age", "numeric", low="young", high="100")
    person.declare("ill", "categorical", categories="no, yes, no")
    person.said("c0-note", "low must be a finite number")
    person.declare("age", "numeric", low="200")
    person.said("c0-note", "low must be smaller than high")
    person.declare("age", "numeric", low="0")
    person.said("c1-note", "categories must be distinct")
    assert person.column("ill").locator("[aria-describedby~=c1-note]").count()
    person.declare("ill", "categorical", categories="no, yes")
    person.said("gaps", "All is declared")
    person.fill("w-rules", "age <= size")
    person.said("gaps", "'size' is no column")
    assert person.page.locator("[role=status]:has(> #gaps)").count() == 1
    person.fill("w-rules", "")
    person.said("gaps", "All is declared")
    # As text: what was typed stays, beside its message.
    person.take("a: [b: {", "valid YAML")
    assert person.page.locator("#yaml").input_value() == "a: [b: {"
    person.fill("rows", "200")
    for one in VALUES:
        mistake(person, *one)
    person.fill("ledger", "own.ledger")
    person.fill("cap", "much")
    person.do("ledger")
    person.said("cap-fault", "finite number")
    person.open_ledger("own.ledger")
    person.fill("name", "../other")
    assert "plain name" in person.fit("Not started")
    person.fill("name", "release")
    person.fill("signing-key", "/none/key.pem")
    assert "key.pem" in person.fit("has failed")
    assert charges(tmp_path / "out" / "own.ledger") == 0
    person.fill("signing-key", "")
    assert "Done." in person.fit(r"Done\.")
    assert not person.errors


NAMES = [
    "<script>window.hacked = 1</script>",
    "<img src=x onerror='window.hacked = 1'>",
    "\"double\" and 'single' & more",
    "{{ 7 * 7 }}",
    "עמודה של טבלה",
    "Größe in cm – 身高 😀",
    "n" * 300,
    "a,b; c",
]


def test_names_of_columns_are_texts(person, tmp_path):
    source = tmp_path / "names.csv"
    with source.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([NAMES, range(len(NAMES))])
    person.draft(source, tmp_path / "out", "Done")
    shown = person.page.locator(".schema .name")
    shown.nth(len(NAMES) - 1).wait_for()
    assert shown.all_text_contents() == NAMES
    kinds = person.page.locator('.schema [data-edit="type"]')
    for i in range(len(NAMES)):
        kinds.nth(i).select_option("numeric")
        for field, value in (("low", "0"), ("high", "9")):
            own = person.page.locator(f"#c{i}-{field}")
            own.fill(value)
            own.blur()
    person.said("gaps", "All is declared")
    person.do("check")
    person.said("checked", "The table fits")
    assert person.page.evaluate("typeof window.hacked") == "undefined"
    assert person.page.locator("main img, main script").count() == 0
    person.page.set_viewport_size({"width": 390, "height": 800})
    assert person.page.evaluate("document.documentElement.scrollWidth") <= 390
    assert not person.errors


def test_many_columns(person, tmp_path):
    source = tmp_path / "wide.csv"
    names = [f"column {i}" for i in range(150)]
    source.write_text(",".join(names) + "\n" + ",".join("1" * 150) + "\n", encoding="utf-8")
    person.draft(source, tmp_path / "out", "Done")
    person.page.locator("#c149-type").wait_for()
    person.declare("column 149", "numeric", low="0", high="9")
    said = person.said("gaps", "of [0-9]+ more columns")
    assert "column 149" not in said


_NAMELESS = """() => [...document.querySelectorAll(
    'input, select, textarea, button, summary, a[href], [role=alert] button')]
  .filter((el) => el.checkVisibility())
  .filter((el) => !([...(el.labels || [])].map((l) => l.textContent).join('')
    || el.getAttribute('aria-label') || el.textContent).trim())
  .map((el) => el.outerHTML)"""
_CONTROLS = """() => [...document.querySelectorAll(
    'input, select, textarea, button, summary, a[href]')]
  .filter((el) => el.checkVisibility() && !el.disabled)
  .map((el, i) => { el.dataset.seen = i; return String(i); })"""
_FOCUSED = "() => document.activeElement && document.activeElement.dataset.seen"
# The least contrast of a text with what is behind it, as WCAG 2 computes it.
_CONTRAST = """() => {
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const rgba = (text) => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = text; canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data; return [r, g, b, a / 255];
  };
  const over = (top, below) => [0, 1, 2].map((i) => top[3] * top[i] + (1 - top[3]) * below[i]);
  const light = (c) => [0.2126, 0.7152, 0.0722].reduce((s, w, i) => {
    const v = c[i] / 255; return s + w * (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  }, 0);
  const behind = (el) => {
    if (!el) return [255, 255, 255];
    const own = rgba(getComputedStyle(el).backgroundColor);
    return own[3] === 1 ? own.slice(0, 3) : over(own, behind(el.parentElement));
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const el = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || !el.checkVisibility()) continue;
    if (el.closest('.visually-hidden, .skip, svg, script, style')) continue;
    const style = getComputedStyle(el), back = behind(el);
    const [a, b] = [light(over(rgba(style.color), back)), light(back)].sort((x, y) => y - x);
    const large = parseFloat(style.fontSize) >= 24
      || (parseFloat(style.fontSize) >= 18.66 && style.fontWeight >= 700);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < (large ? 3 : 4.5)) found.push([ratio.toFixed(2), el.outerHTML.slice(0, 120)]);
  }
  return found;
}"""


def test_keyboard_names_contrast_and_width(small):
    page = small.page
    small.do("check")
    small.said("checked", "The table fits")
    small.said("planned", "Epsilon 1 at delta")
    small.open_ledger("own.ledger")
    small.fill("delta", "small")
    small.said("delta-fault", "between 0 and 1")
    assert not page.evaluate(_NAMELESS)
    assert (
        page.locator("[tabindex]").evaluate_all("(all) => all.filter((e) => e.tabIndex > 0)") == []
    )
    assert page.locator("html[lang]").count() == page.locator("main").count() == 1
    assert page.title()
    levels = page.locator("h1, h2, h3").evaluate_all("(all) => all.map((e) => +e.tagName[1])")
    assert all(after - before <= 1 for before, after in zip(levels, levels[1:], strict=False))
    for mode in ("light", "dark"):
        if page.locator("html").get_attribute("data-bs-theme") != mode:
            page.locator("#mode").click()
        # Colours change over some frames.
        page.wait_for_timeout(500)
        assert not page.evaluate(_CONTRAST), mode
    page.locator("body").evaluate("(body) => { body.tabIndex = -1; body.focus(); }")
    wanted, seen = set(page.evaluate(_CONTROLS)), set()
    for _ in range(2 * len(wanted) + 40):
        page.keyboard.press("Tab")
        seen.add(page.evaluate(_FOCUSED))
    assert wanted <= seen
    page.set_viewport_size({"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.locator("#epsilon").focus()
    before = page.locator("#epsilon").input_value()
    page.keyboard.press("ArrowRight")
    assert page.locator("#epsilon").input_value() != before


def test_a_low_contrast_and_a_field_without_a_name_are_found(person):
    page = person.page
    page.evaluate("""() => {
      const grey = document.createElement('p');
      grey.textContent = 'grey'; grey.style.cssText = 'color: #999; background: #fff';
      document.body.append(grey, document.createElement('input'));
    }""")
    assert re.search("grey", str(page.evaluate(_CONTRAST)))
    assert page.evaluate(_NAMELESS)


def test_undo_and_redo(small):
    small.declare("age", "numeric", high="90")
    small.until(lambda: "high: 90" in small.page.locator("#yaml").input_value())
    small.do("undo")
    small.said("undone", "Undone: high of age")
    small.until(lambda: "high: 100" in small.page.locator("#yaml").input_value())
    assert small.page.locator("#c0-high").input_value() == "100"
    small.do("redo")
    small.until(lambda: "high: 90" in small.page.locator("#yaml").input_value())


def test_a_page_without_its_program_says_so(browser, tmp_path):
    from app_cases import Drive, serving

    with serving(tmp_path) as (url, _):
        person = Drive(browser, url)
        assert person.page.locator("#lost").is_hidden()
    person.page.locator("#lost").wait_for()
    assert person.page.locator("#lost").get_attribute("role") == "alert"
    person.context.close()
