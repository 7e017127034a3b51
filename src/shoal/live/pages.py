"""The pages: the one of all runs, and one of each run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files as package_files
from pathlib import Path
from string import Template
from typing import Any, NamedTuple

from ..config.trust import NOTHING, Trust
from ..errors import printable
from ..monitor import film, replay
from ..report import html
from . import run_files
from .index import LIVE, Index, Run, flat
from .tables import (
    PER_PAGE,
    Query,
    ago,
    bar,
    differences,
    duration,
    facts,
    heat_maps,
    pill,
    runs_table,
    statistics,
)

STATIC = package_files("shoal.live") / "static"
ASSETS = {
    "style.css": "text/css",
    "uPlot.min.css": "text/css",
    "uPlot.iife.min.js": "text/javascript",
    "uPlot.LICENSE": "text/plain",
    "data.js": "text/javascript",
    "charts.js": "text/javascript",
    "replay.js": "text/javascript",
    "page.js": "text/javascript",
    "icon.svg": "image/svg+xml",
}
ONLY_OURS = (  # the content security policy
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
    " media-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'"
)
NO_SCRIPT = (
    "<noscript><p class=faint>Curves and replays need JavaScript; the tables do not.</p></noscript>"
)


class Look(NamedTuple):
    """How pages are made: by a server, or as files."""

    live: bool = True
    may_act: bool = False  # whether runs can be stopped, resumed and evaluated from here
    trust: Trust = NOTHING

    @property
    def suffix(self) -> str:
        return "" if self.live else ".html"


def asset(name: str) -> bytes:
    return (STATIC / name).read_bytes()


def _page(look: Look, title: str, place: str, body: str, root: str, slug: str = "") -> str:
    """A whole page."""
    policy = "" if look.live else f'<meta http-equiv="Content-Security-Policy" content="{FILE}">\n'
    return Template((STATIC / "page.html").read_text("utf-8")).substitute(
        live="yes" if look.live else "no",
        root=root,
        suffix=look.suffix,
        index="" if look.live else "index.html",
        slug=slug,
        policy=policy,
        title=escape(title),
        place=escape(place),
        state="" if look.live else "exported",
        body=body,
    )


# a page opened from a file has no origin of its own, so that 'self' alone would match nothing
FILE = ONLY_OURS.replace("'self'", "'self' file:")


def all_runs(index: Index, query: Query, look: Look) -> str:
    """The page of all runs."""
    place = index.root.name or str(index.root)
    chosen = [run for slug, run in index.runs.items() if slug in query.chosen]
    per_page = PER_PAGE if look.live else len(index.runs) + 1
    table = runs_table(index, query, look.suffix, per_page)
    words = escape(query.words)
    body = f"""
<section aria-labelledby="runs-title"><h1 id="runs-title">Runs</h1>
<form method="get" id="choose" action="">
<div class="bar">
<label class="search"><span class="unseen">find runs</span>
<input type="search" name="q" value="{words}" placeholder="find: mappo tag finished …"></label>
<button type="submit">Show</button>
<button type="submit" name="compare" value="yes">Compare picked</button>
<button type="button" id="none" hidden>Pick none</button>
</div>
<div id="runs">{table}</div>
</form></section>
<section id="curves"><h2>Curves</h2>{NO_SCRIPT}</section>
<div id="compare">{compare(chosen, look)}</div>
{crossplays(index)}"""
    return _page(look, f"Shoal: {place}", place, body, "./")


def compare(runs: Sequence[Run], look: Look) -> str:
    """How the picked runs differ, and what the report says of them."""
    return (
        '<section><h2>Differences</h2><div class="differences">'
        f"{differences(runs)}</div></section>"
        f"<section><h2>Statistics</h2>{statistics(runs, look.trust)}</section>"
    )


def crossplays(index: Index) -> str:
    """Heat maps of all crossplay.json in the folder."""
    maps = [
        f"<details{' open' if i == 0 else ''}><summary>"
        f"{escape(str(path.parent.relative_to(index.root)))}</summary>{heat_maps(path)}</details>"
        for i, path in enumerate(index.crossplays[:20])
    ]
    return f"<section><h2>Cross-play</h2>{''.join(maps)}</section>" if maps else ""


# -- one run ---------------------------------------------------------------------------------------


def one_run(index: Index, run: Run, look: Look, jobs: Iterable[str] = ()) -> str:
    """The page of a run."""
    name = index.names.get(run.kin, "")
    body = f"""
<h1>{escape(run.name)}</h1>
<div id="head">{head(run, look, jobs)}</div>
{_replays(index.root, run)}
<section id="curves" data-kin="{run.kin}" data-kind="{escape(name)}"><h2>Curves</h2>
{NO_SCRIPT}</section>
{_videos(index.root, run, look)}
{_faults(run)}
{_scores(run)}
{_console(index.root, run)}
<section><h2>Config</h2>
<details><summary>all settings</summary>{_config(run)}</details></section>"""
    return _page(look, f"{run.name} – Shoal", run.id, body, "../", run.slug)


def head(run: Run, look: Look, jobs: Iterable[str] = ()) -> str:
    """The part of a run's page that changes while it trains."""
    scores = ", ".join(f"{escape(team)} {x:.2f}" for team, x in run.scores.items())
    pairs = [
        ("status", pill(run)),
        ("why", escape(run.why)),
        ("progress", f"{bar(run)} {run.steps:,} of {run.total:,} steps" if run.total else ""),
        ("left", duration(run.left) if run.left else ""),
        ("speed", f"{run.rate:,.0f} steps/s" if run.rate else ""),
        ("trained for", duration(run.seconds) if run.seconds else ""),
        ("return of one agent", scores.replace("-", "−")),
        ("algorithm", escape(run.label)),
        ("environment", escape(run.env)),
        ("where", escape(run.where)),
        ("last sign", ago(run.updated)),
        ("faults", str(run.faults or "")),
    ]
    told = "".join(f"<li>{escape(job)}</li>" for job in jobs)
    return facts(pairs) + _buttons(run, look) + (f'<ul class="jobs">{told}</ul>' if told else "")


def _buttons(run: Run, look: Look) -> str:
    """What can be done to a run in its state."""
    if not look.live or not run.config:
        return ""
    if not look.may_act:
        return (
            '<p class="faint">To stop, resume or evaluate it from here, open the address with the'
            " token that shoal live printed.</p>"
        )
    words = ["stop"] if run.status in LIVE else ["evaluate"]
    words += ["resume"] if run.status in ("stopped", "dead", "failed") else []
    forms = "".join(
        f'<form method="post" action="../run/{run.slug}/{word}">'
        f'<button type="submit">{word.capitalize()}</button></form>'
        for word in words
    )
    return f'<div class="bar">{forms}</div>'


def _replays(root: Path, run: Run) -> str:
    """The player of recorded episodes; JavaScript draws them."""
    names = [path.name for path in run_files.listed(root, run, replay.FOLDER)]
    if not names:
        return (
            "<section><h2>Replays</h2><p class=faint>None were recorded: <code>--replays 1</code>"
            " records episodes of games that Shoal draws itself, and runs of 100,000 steps or"
            " more do by themselves.</p></section>"
        )
    told = escape("\n".join(names))
    return f'<section id="replays" data-files="{told}"><h2>Replays</h2>{NO_SCRIPT}</section>'


def _videos(root: Path, run: Run, look: Look) -> str:
    paths = run_files.listed(root, run, film.FOLDER)
    if not paths:
        return ""
    shown = []
    for path in paths[-12:][::-1]:
        address = f"../file/{run.slug}/{film.FOLDER}/{path.name}"
        label = escape(path.stem)
        picture = (
            f'<img src="{address}" alt="film {label}" loading="lazy">'
            if path.suffix == ".gif"
            else f'<video src="{address}" controls preload="metadata" loop muted></video>'
        )
        shown.append(f"<figure>{picture}<figcaption>{label}</figcaption></figure>")
    return f'<section><h2>Videos</h2><div class="films">{"".join(shown)}</div></section>'


def _faults(run: Run) -> str:
    found = run_files.faults(run)
    if not found:
        return ""
    lines = []
    for fault in found:
        rest = "\n".join(f"{name}: {value}" for name, value in fault.items())
        what = str(fault.get("report", "")).strip() or "a fault"
        lines.append(
            f"<details><summary>{escape(printable(what.splitlines()[-1], 160))}</summary>"
            f"<pre>{escape(printable(rest, 5000))}</pre></details>"
        )
    told = f"{run.faults:,} in all, the newest first"
    return f'<section><h2>Faults</h2><p class="faint">{told}</p>{"".join(lines[:20])}</section>'


def _console(root: Path, run: Run) -> str:
    said = run_files.console(root, run)
    if not said:
        return ""
    shown = escape(printable(said, run_files.SAID))
    return (
        "<section><h2>Console</h2><details><summary>the end of what it said</summary>"
        f"<pre>{shown}</pre></details></section>"
    )


def _scores(run: Run) -> str:
    """The scores in the summary."""
    said = run_files.summary(run)
    columns = [
        (word, said[word])
        for word in ("random", "before", "scores", "final", "metrics", "final_metrics")
        if isinstance(said.get(word), dict) and said[word]
    ]
    if not columns:
        return ""
    names = dict.fromkeys(name for _, values in columns for name in values)
    lines = [
        html.line([name, *(_number(values.get(name)) for _, values in columns)], 1)
        for name in names
    ]
    titles = {"scores": "after", "final_metrics": "final (metrics)"}
    head = ["", *(titles.get(word, word) for word, _ in columns)]
    return f"<section><h2>Scores</h2>{html.table(head, lines, 1)}</section>"


def _number(value: Any) -> str:
    return f"{value:.3g}".replace("-", "−") if isinstance(value, int | float) else "–"


def _config(run: Run) -> str:
    lines = [html.line([name, printable(str(x), 300)], 2) for name, x in flat(run.config).items()]
    return html.table(("setting", "value"), lines, 2)
