"""The style sheet of the report: light, dark and paper from one set of names."""

from __future__ import annotations

__all__ = ["DARK", "LIGHT", "style_sheet"]

# Text on its ground keeps a contrast of 4.5 or more (tests/recipes/test_report.py holds them to it).
LIGHT = {
    "page": "#ffffff", "panel": "#f6f7f9", "ink": "#16191d", "muted": "#59616b", "rule": "#e2e5ea",
    "first": "#1f5fbf", "second": "#a84a08", "track": "#e6e9ee", "bar": "#5b8bd6", "note": "#fdf6e7",
    "count": "#000000", "count-middle": "#000000", "count-deep": "#ffffff",
}  # fmt: skip
DARK = {
    "page": "#121519", "panel": "#1a1e24", "ink": "#e9ecef", "muted": "#a3acb7", "rule": "#2d333b",
    "first": "#82b1ff", "second": "#f5a35c", "track": "#2a3038", "bar": "#5c8fdb", "note": "#2b2416",
    "count": "#ffffff", "count-middle": "#000000", "count-deep": "#000000",
}  # fmt: skip

_RULES = """
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{margin:0;background:var(--page);color:var(--ink);font:16px/1.55
system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans","Helvetica Neue",Arial,"Microsoft YaHei",
"PingFang SC","Noto Sans CJK SC",sans-serif;
font-variant-numeric:tabular-nums}
main{max-width:1040px;margin:0 auto;padding:56px 32px 40px}
h1{font-size:30px;line-height:1.2;font-weight:650;letter-spacing:-.015em;margin:0;overflow-wrap:anywhere}
h2{font-size:20px;line-height:1.3;font-weight:650;letter-spacing:-.01em;margin:0 0 4px}
h3{font-size:15px;font-weight:600;margin:0 0 2px}
p{margin:0 0 12px;max-width:80ch}
.eyebrow{color:var(--muted);font-size:13px;letter-spacing:.02em;margin:0 0 6px}
section{border-top:1px solid var(--rule);margin-top:44px;padding-top:26px}
.lead,.caption{color:var(--muted);font-size:14px}
.lead{margin-bottom:20px}
figure .caption{margin:8px 0 0}
.hero{display:grid;grid-template-columns:minmax(0,5fr) minmax(0,7fr);gap:28px 56px;align-items:end;
margin-top:38px}
.figure{font-size:84px;line-height:1;font-weight:680;letter-spacing:-.045em;color:var(--first);white-space:nowrap}
.figure small{font-size:.5em;font-weight:600;letter-spacing:0;margin-left:.08em}
.figure-name{font-size:15px;font-weight:600;margin:0 0 8px}
.sentence{font-size:17px;margin:26px 0 0;max-width:74ch}
.compare{display:grid;grid-template-columns:minmax(0,1fr) auto;gap:3px 14px;margin:0}
.compare dt{font-size:14px;grid-column:1/-1;margin-top:8px;overflow-wrap:anywhere}
.compare .lane{background:var(--track);height:14px;border-radius:7px;overflow:hidden;align-self:center;
margin:0}
.compare .lane span{display:block;height:100%;border-radius:7px 0 0 7px;background:var(--first)}
.compare .lane.other span{background:var(--muted)}
.compare dd{margin:0;font-size:14px;font-weight:600;min-width:4.2em;text-align:right}
.tiles{display:flex;flex-wrap:wrap;margin:34px 0 0;padding:0;border:1px solid var(--rule);border-radius:10px;
overflow:hidden}
.tiles div{flex:1 1 122px;padding:13px 16px 12px;box-shadow:0 0 0 .5px var(--rule)}
.tiles dt{color:var(--muted);font-size:13px}
.tiles dd{margin:1px 0 0;font-size:19px;font-weight:600;letter-spacing:-.01em;overflow-wrap:anywhere}
.notes{background:var(--note);border-radius:10px;padding:14px 20px;margin:28px 0 0;font-size:15px}
.notes ul{margin:0;padding-left:18px}
.notes li{overflow-wrap:anywhere}
.pair{display:grid;grid-template-columns:repeat(2,minmax(0,1fr));gap:34px 44px}
figure{margin:0;break-inside:avoid}
.wide{overflow-x:auto}
.wide svg{min-width:640px}
svg{display:block;max-width:100%;height:auto;font:12px/1
system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans",Arial,
"Microsoft YaHei","PingFang SC","Noto Sans CJK SC",sans-serif;font-variant-numeric:tabular-nums}
svg text{fill:var(--muted)}
svg .ink,svg .value{fill:var(--ink)}
svg .value,svg .name{font-weight:600}
svg .value{paint-order:stroke;stroke:var(--page);stroke-width:4px;stroke-linejoin:round}
svg .count{fill:var(--count)}
svg .count.middle{fill:var(--count-middle)}
svg .count.deep{fill:var(--count-deep)}
svg .grid{stroke:var(--rule)}
svg .baseline{stroke:var(--muted)}
svg .curve{fill:none;stroke-width:2.25;stroke-linejoin:round;stroke-linecap:round}
svg .curve.first,svg .ring.first{stroke:var(--first)}
svg .curve.second{stroke:var(--second);stroke-dasharray:6 4}
svg .dot.first,svg .name.first{fill:var(--first)}
svg .dot.second,svg .name.second{fill:var(--second)}
svg .ring{fill:var(--page);stroke-width:2.25}
svg .bar{fill:var(--bar)}
svg .bar.few{fill-opacity:.4}
svg .whisker{stroke:var(--ink);stroke-width:1.25}
svg .reference{stroke:var(--second);stroke-width:1.5;stroke-dasharray:5 4}
svg .cell{fill:var(--panel)}
svg .heat.right,svg .meter{fill:var(--first)}
svg .heat.mixed{fill:var(--muted)}
svg .heat.wrong{fill:var(--second)}
svg .track{fill:var(--track)}
table{border-collapse:collapse;width:100%;font-size:14px}
th,td{text-align:left;vertical-align:top;padding:6px 14px 6px 0;border-bottom:1px solid var(--rule);
overflow-wrap:anywhere}
th{font-weight:500;color:var(--muted)}
thead th{font-size:13px}
tbody th{color:var(--ink);font-weight:400}
.number{text-align:right;white-space:nowrap}
.stack>div+div{margin-top:28px}
.settings th{width:46%;color:var(--muted)}
details{margin-top:18px}
summary{cursor:pointer;font-size:14px;font-weight:600;color:var(--first)}
details table{margin-top:10px}
.scroll{overflow-x:auto}
pre{background:var(--panel);border-radius:8px;padding:14px 16px;margin:0 0 26px;font-size:13px;
line-height:1.5;white-space:pre-wrap;overflow-wrap:anywhere;
font-family:ui-monospace,"Cascadia Mono",Consolas,"Noto Sans Mono",monospace}
pre .word{display:inline-block;max-width:100%}
.mixups{margin:20px 0 0;padding-left:20px;font-size:14px}
.mixups li{margin-bottom:3px;overflow-wrap:anywhere}
footer{border-top:1px solid var(--rule);margin-top:44px;padding-top:16px;color:var(--muted);font-size:13px}
@media(max-width:760px){
main{padding:30px 18px 28px}
h1{font-size:25px}
.hero,.pair{grid-template-columns:minmax(0,1fr)}
.hero{margin-top:26px}
.figure{font-size:68px}
.wide svg{max-width:none}
section{margin-top:34px;padding-top:20px}
}
"""
_PAPER = """
@page{size:A4;margin:14mm}
html{-webkit-print-color-adjust:exact;print-color-adjust:exact}
body{font-size:10.5pt}
main{max-width:none;padding:0}
section{margin-top:20pt;padding-top:12pt}
.hero{margin-top:16pt;grid-template-columns:minmax(0,5fr) minmax(0,7fr)}
.pair{grid-template-columns:repeat(2,minmax(0,1fr));gap:16pt 20pt}
.wide{overflow:visible}
.wide svg{min-width:0}
h2,h3,.lead{break-after:avoid;break-inside:avoid}
details::details-content{content-visibility:visible;display:block}
tr,.tiles,.notes{break-inside:avoid}
summary{color:var(--ink)}
"""


def _variables(colours: dict[str, str]) -> str:
    return ":root{" + "".join(f"--{name}:{colour};" for name, colour in colours.items()) + "}"


def style_sheet() -> str:
    """The style sheet.

    Returns:
        CSS that refers to nothing outside the page.
    """
    dark = f"@media screen and (prefers-color-scheme:dark){{{_variables(DARK)}}}"
    paper = f"@media print{{{_PAPER}}}"
    return f":root{{color-scheme:light dark}}{_variables(LIGHT)}{dark}{_RULES}{paper}"
