"""How the report's page looks, light and dark; knows no results."""

COLOURS = (
    ("#0b5fa5", "#6db3f2"),
    ("#b3261e", "#ff8a80"),
    ("#1b7a3d", "#6fd08c"),
    ("#7a4fb0", "#c3a1f5"),
    ("#8a5a00", "#f0b955"),
    ("#5a6472", "#a9b4c2"),
)
"""On white and on near-black; every one has a contrast of 4.5 or more with its ground."""

HEATS = 11
"""Shades behind an accuracy, from 0 to 100 %."""

STYLE = """
:root{color-scheme:light dark;--ground:#fff;--card:#f6f8fa;--ink:#1c2126;--faint:#d8dde3;
--soft:#5a6472;--heat:11,95,165;LIGHT}
@media(prefers-color-scheme:dark){:root{--ground:#14181d;--card:#1a2027;--ink:#e6e9ed;
--faint:#343c46;--soft:#a9b4c2;--heat:109,179,242;DARK}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:76rem;padding:2rem 1.5rem 4rem;background:var(--ground);
color:var(--ink);font:15px/1.5 system-ui,sans-serif}
h1{font-size:1.6rem;line-height:1.2;margin:0 0 .3rem}
h2{font-size:1.2rem;margin:2.6rem 0 .5rem}h3{font-size:.95rem;margin:0 0 .3rem}
p{margin:.4rem 0;max-width:62rem}.soft{color:var(--soft)}
.note{border-left:4px solid var(--c4);padding:.3rem .8rem;background:var(--card)}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(20rem,1fr));gap:1rem}
figure,.card{margin:0;padding:.8rem .9rem;background:var(--card);border:1px solid var(--faint);
border-radius:.5rem}
figcaption{font-weight:600;font-size:.9rem;margin-bottom:.4rem}
figcaption span{display:block;font-weight:400;color:var(--soft)}
svg{width:100%;height:auto;display:block}svg text{font-size:11px;fill:var(--soft)}
.grid{stroke:var(--faint);fill:none}.line,.whisker{fill:none;stroke:currentColor}
.line{stroke-width:2;stroke-linejoin:round}.whisker{stroke-width:1.2;opacity:.55}
.dot{fill:currentColor}
.mark{display:inline-block;width:24px;height:12px;vertical-align:-1px;margin-right:.35rem}
.legend{display:flex;flex-wrap:wrap;gap:.3rem 1.4rem;margin:1.2rem 0 .8rem;padding:.5rem 0;
list-style:none;position:sticky;top:0;background:var(--ground);border-bottom:1px solid var(--faint)}
.scroll{overflow-x:auto;margin-top:.8rem}
table{border-collapse:collapse;font-size:.85rem;font-variant-numeric:tabular-nums}
.wide{width:100%}
th,td{padding:.25rem .65rem;text-align:right;white-space:nowrap;
border-bottom:1px solid var(--faint)}
th{color:var(--soft);font-weight:600}th:first-child,td:first-child{text-align:left}
tr.first td{border-top:2px solid var(--faint)}
details{margin-top:.6rem}summary{cursor:pointer;color:var(--soft);font-size:.85rem}
.words td{white-space:normal;text-align:left;vertical-align:top;overflow-wrap:anywhere}
.words th{text-align:left}.words q{quotes:none;white-space:pre-wrap}
@media print{.legend{position:static}}
"""


def style() -> str:
    light = "".join(f"--c{i}:{pair[0]};" for i, pair in enumerate(COLOURS))
    dark = "".join(f"--c{i}:{pair[1]};" for i, pair in enumerate(COLOURS))
    classes = [f".c{i}{{color:var(--c{i})}}" for i in range(len(COLOURS))]
    shades = [
        f".h{i}{{background:rgba(var(--heat),{0.45 * i / (HEATS - 1):.3f})}}" for i in range(HEATS)
    ]
    return STYLE.replace("LIGHT", light).replace("DARK", dark) + "".join([*classes, *shades])


def heat(accuracy: float | None) -> str:
    """The class of a table's cell."""
    return "" if accuracy is None else f"h{round(accuracy * (HEATS - 1))}"
