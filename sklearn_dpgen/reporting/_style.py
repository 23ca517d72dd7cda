"""The look of a page: one style sheet, light and dark, and a shell around what is shown."""

from sklearn_dpgen.utils._html import Html, element

__all__ = ["badge", "page"]

_CSS = """
:root{color-scheme:light dark;--bg:#f5f6f8;--card:#fff;--ink:#16202e;--soft:#5a6676;--line:#dfe3e9;
--accent:#1769e0;--accent-soft:#e8f0fd;--first:#c3cad4;--good:#0f7b4f;--good-bg:#e3f5ec;
--bad:#b3261e;--bad-bg:#fdeceb;--warn:#8a4b00;--warn-bg:#fdf0dc;--less:#c2570c}
@media (prefers-color-scheme:dark){:root{--bg:#0f141b;--card:#171e28;--ink:#e8edf4;--soft:#9dabbd;
--line:#2a3442;--accent:#6aa8ff;--accent-soft:#1a2b45;--first:#4a5769;--good:#5ad19c;
--good-bg:#12301f;--bad:#ff8a80;--bad-bg:#3b1a19;--warn:#f5b869;--warn-bg:#37260f;--less:#ff9d57}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--ink);
font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans",sans-serif;
-webkit-text-size-adjust:100%}
main{max-width:1120px;margin:0 auto;padding:36px 20px 72px}
h1{font-size:clamp(1.6rem,4.2vw,2.4rem);line-height:1.15;letter-spacing:-.02em;margin:.1em 0 .3em}
h2{font-size:1.35rem;letter-spacing:-.01em;margin:0}
h3{font-size:1rem;margin:0}
h1,h2,h3,p,li,td,th,dd{overflow-wrap:anywhere;unicode-bidi:plaintext}
a{color:var(--accent)}
.lead{color:var(--soft);max-width:46em;margin:.2em 0}
.eyebrow{color:var(--accent);font-weight:600;font-size:.85rem;margin:0}
.note{color:var(--soft);font-size:.9rem;max-width:62em;margin:.5em 0}
section{margin-top:44px}
.head{display:flex;flex-wrap:wrap;gap:8px 12px;align-items:center;margin-bottom:8px}
.badge{display:inline-block;border-radius:999px;padding:2px 11px;font-size:.78rem;font-weight:600;
white-space:nowrap}
.badge.private{background:var(--good-bg);color:var(--good)}
.badge.raw{background:var(--bad-bg);color:var(--bad)}
.badge.warn{background:var(--warn-bg);color:var(--warn)}
.scores{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:14px;
margin:22px 0}
.card{background:var(--card);border:1px solid var(--line);border-radius:12px;padding:16px 18px;
min-width:0}
.score .what{color:var(--soft);font-size:.88rem;font-weight:600}
.score .big{font-size:1.95rem;font-weight:700;letter-spacing:-.03em;line-height:1.25;
font-variant-numeric:tabular-nums}
.score .than{color:var(--soft);font-size:.82rem;line-height:1.4;margin-top:4px}
.score .meter{position:relative;height:6px;border-radius:3px;background:var(--line);
margin:8px 0 2px}
.score .meter i{position:absolute;inset:0 auto 0 0;border-radius:3px;background:var(--accent)}
.score .meter b{position:absolute;top:-3px;width:2px;height:12px;background:var(--ink);
border-radius:1px}
.words{margin:0;padding-left:1.2em}
.words li{margin:.3em 0}
.grid{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(320px,100%),1fr));gap:14px}
.narrow{max-width:520px}
.three{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(300px,100%),1fr));gap:14px}
figure{margin:0}
figure .top{display:flex;justify-content:space-between;gap:10px;align-items:baseline;
margin-bottom:6px}
figure .top h3{min-width:0}
figure .top span{color:var(--soft);font-size:.82rem;white-space:nowrap;
font-variant-numeric:tabular-nums}
.chart{display:block;max-width:460px;height:auto}
.chart text{font:10px system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans",sans-serif;
fill:var(--soft)}
.chart text.label{font-size:11px;fill:var(--ink)}
.chart .first{fill:var(--first)}
.chart .second{fill:var(--accent)}
.chart .second-line{fill:none;stroke:var(--accent);stroke-width:1.8;stroke-linejoin:round}
.chart .whisker{stroke:var(--ink);stroke-width:1;fill:none;opacity:.65}
.chart .axis{stroke:var(--line);stroke-width:1;fill:none}
.chart .frame{fill:none;stroke:var(--line)}
.chart .more{fill:var(--accent)}
.chart .less{fill:var(--less)}
.chart .guess{fill:none;stroke:var(--soft);stroke-dasharray:4 4}
.legend{display:flex;flex-wrap:wrap;gap:4px 18px;color:var(--soft);font-size:.88rem;margin:10px 0}
.legend i{display:inline-block;width:14px;height:10px;border-radius:2px;margin-right:6px}
.legend .k1{background:var(--first)}
.legend .k2{background:var(--accent)}
.legend .k3{background:var(--less)}
.scroll{overflow-x:auto;margin:8px 0;background:var(--card);border:1px solid var(--line);
border-radius:12px;padding:6px 18px;max-width:720px}
.scroll table{width:100%}
.scroll tr:last-child td{border-bottom:0}
figure .scroll{border:0;padding:0;margin:0}
.facts{width:100%}
.card tr:last-child>*{border-bottom:0}
table{border-collapse:collapse;font-size:.9rem;font-variant-numeric:tabular-nums}
th,td{text-align:left;padding:6px 14px 6px 0;border-bottom:1px solid var(--line);
vertical-align:top}
thead th{color:var(--soft);font-weight:600;font-size:.82rem}
tbody th{font-weight:500}
td.num,th.num{text-align:right;white-space:nowrap;overflow-wrap:normal}
figure table{font-size:.8rem;width:100%;margin-top:8px}
figure th,figure td{padding:3px 8px 3px 0}
.facts th{color:var(--soft);font-weight:600;width:15em;padding-right:20px}
details{margin-top:10px}
summary{cursor:pointer;color:var(--soft);font-size:.9rem}
pre,code{font:.82rem/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
pre{overflow-x:auto;white-space:pre-wrap;overflow-wrap:anywhere;margin:0}
code{overflow-wrap:anywhere}
footer{color:var(--soft);font-size:.85rem;margin-top:56px;border-top:1px solid var(--line);
padding-top:14px}
nav{display:flex;flex-wrap:wrap;gap:4px 16px;font-size:.9rem;margin-top:14px}
nav a{text-decoration:none}
@media (max-width:560px){main{padding:22px 14px 48px}.card{padding:13px 14px}
.facts th,.facts td{display:block;border:0;padding:0}.facts th{padding-top:8px}
.scores{grid-template-columns:repeat(2,minmax(0,1fr))}.score .big{font-size:1.5rem}
.scores .card:last-child:nth-child(odd){grid-column:1/-1}}
@media print{body{background:#fff}section,.card{break-inside:avoid}}
"""


def badge(kind):
    """Return the mark of what is shown: "private", or "raw" where it is not.

    Of a whole page "void" says that there is no guarantee, and "audited" that the audit has none.
    """
    words = {
        "private": "private: may be published",
        "audited": "private, but for the audit",
        "raw": "not private",
        "void": "no guarantee",
    }
    classes = {
        "private": "badge private",
        "raw": "badge raw",
        "void": "badge warn",
        "audited": "badge warn",
    }
    return element("span", words[kind], class_=classes[kind])


def page(title, *children):
    """Return a whole page, which needs nothing from elsewhere.

    Parameters
    ----------
    title : str
    *children : Html

    Returns
    -------
    str
    """
    # Nothing is fetched and nothing is run, whatever a name of a column says.
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    meta = [
        Html('<meta charset="utf-8"/>'),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{policy}"/>'),
        Html('<meta name="viewport" content="width=device-width,initial-scale=1"/>'),
        Html('<meta name="referrer" content="no-referrer"/>'),
    ]
    head = element("head", meta, element("title", title), element("style", Html(_CSS)))
    body = element("body", element("main", children))
    return "<!DOCTYPE html>\n" + element("html", head, body, lang="en") + "\n"
