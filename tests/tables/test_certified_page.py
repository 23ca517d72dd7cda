"""What the page of certified noise shows."""

import re
import textwrap
from pathlib import Path

import pytest

import sklearn_dpgen

PAGE = Path(sklearn_dpgen.__file__).parents[1] / "doc" / "certified_noise.rst"


@pytest.mark.slow
@pytest.mark.skipif(not PAGE.exists(), reason="needs a checkout, not a wheel")
def test_the_page_prints_what_it_says(capsys):
    pytest.importorskip("opendp")
    pytest.importorskip("statsmodels")
    block = r"^\.\. {}::\n\n((?:\n|[ ]+.*\n)+)"
    text = PAGE.read_text(encoding="utf-8")
    code, said = (re.findall(block.format(k), text, flags=re.M) for k in ("testcode", "testoutput"))
    assert len(code) == len(said) == 2
    names = {}
    for block, output in zip(code, said, strict=True):
        exec(compile(textwrap.dedent(block), PAGE.name, "exec"), names)
        assert capsys.readouterr().out.strip() == textwrap.dedent(output).strip()
