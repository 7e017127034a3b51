"""`shoal live` under load, on this machine alone: python benchmarks/live.py

1,000 runs of 10 MB of metrics each (one file, hard-linked), 200 clients that listen to events and
read pages, and 24 hours of metrics of one run, a line a second, written within the length of the
test. Before them a browser, where there is Chromium, opens the page of the fresh server alone.
About two minutes. Prints JSON: seconds until the browser paints first, shows the table and draws
curves; seconds to the first answer, quantiles of answers, processor time of the server for each,
with its looks at the folder, memory, errors, and how much of the day was read.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from processor import processor

from shoal.config.config import Config
from shoal.store import folder

DAY = 86_400  # lines: one a second
KINDS = 30  # metrics of a line
PATIENCE = 120.0  # clients verify nothing: reading certificates takes each of them long


def line(step: int) -> str:
    """A log point of a usual size."""
    values = {f"agent/metric_{i}": (step * (i + 1) % 997) / 997 for i in range(KINDS)}
    at = {"env_step": step, "seconds": step / 1000, "steps_per_second": 1000.0}
    return json.dumps(at | {"agent/return": step / DAY} | values) + "\n"


def make_runs(root: Path, count: int, megabytes: float) -> Path:
    """Run folders whose metrics are one file; return the one that goes on."""
    config = Config.build("mpe/simple_spread", {"agent": ("mappo", {})}, {}, {"devices": 1})
    first = root / "run-0000"
    folder.create(first, config)
    with (first / folder.METRICS).open("w") as file:
        step = 0
        while file.tell() < megabytes * 1e6:
            file.write(line(step))
            step += 1000
    for i in range(1, count):
        run = root / f"run-{i:04d}"
        run.mkdir()
        shutil.copyfile(first / folder.CONFIG, run / folder.CONFIG)
        os.link(first / folder.METRICS, run / folder.METRICS)
    going = root / "going"
    folder.create(going, config)
    return going


async def write_a_day(run: Path, seconds: float, share: float) -> int:
    """Append a day's lines, or a share of them, in bursts."""
    total = int(DAY * share)
    bursts = max(int(seconds / 0.5), 1)
    with (run / folder.METRICS).open("a") as file:
        for burst in range(bursts):
            begin = total * burst // bursts
            end = total * (burst + 1) // bursts
            file.writelines(line(step) for step in range(begin, end))
            file.flush()
            await asyncio.sleep(0.5)
    return total


async def client(
    address: str, until: float, slugs: list[str], went: list[float], wrong: list[str]
) -> int:
    """Listen to events and read what a page reads; return how many events came."""
    heard = 0

    async def read(own: httpx.AsyncClient) -> None:
        while time.monotonic() < until:
            for path in ("", "table", f"data/{slugs[0]}?metric=agent/return", f"run/{slugs[0]}"):
                began = time.monotonic()
                try:
                    answer = await own.get(address + path)
                    answer.raise_for_status()
                    went.append(time.monotonic() - began)
                except httpx.HTTPError as error:
                    wrong.append(f"{path}: {error!r}")
            await asyncio.sleep(2.0 + 2.0 * np.random.random())

    async with httpx.AsyncClient(timeout=PATIENCE, verify=False) as own:
        reading = asyncio.create_task(read(own))
        try:
            async with (
                asyncio.timeout(until - time.monotonic()),
                own.stream("GET", f"{address}events") as events,
            ):
                async for text in events.aiter_lines():
                    heard += text.startswith("data:")
        except TimeoutError:
            pass
        except httpx.HTTPError as error:
            wrong.append(f"events: {error!r}")
        await reading
    return heard


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
QUIET = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")
PAINTED = """() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime"""


def painted(address: str) -> dict[str, Any]:
    """Seconds from asking for the page until a browser shows it; empty without one."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return {}
    if CHROMIUM is None:
        return {}
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=list(QUIET))
        page = browser.new_page()
        page.set_default_timeout(PATIENCE * 1e3)
        page.goto("about:blank")  # the browser itself has started
        began = time.monotonic()
        page.goto(address, wait_until="commit")
        page.wait_for_selector("tr[data-slug]")
        table = time.monotonic() - began
        page.wait_for_selector(".card canvas")
        curves = time.monotonic() - began
        page.wait_for_function("() => shoalCharts.data.size === shoalCharts.runs.length")
        told = {
            "first_paint_seconds": round(page.evaluate(PAINTED) / 1e3, 3),
            "table_shown_seconds": round(table, 3),
            "first_curve_seconds": round(curves, 2),
            "all_curves_seconds": round(time.monotonic() - began, 2),
            "curves_of_runs": page.evaluate("() => shoalCharts.runs.length"),
        }
        browser.close()
    return {"browser": told}


def memory(pid: int) -> float:
    """Megabytes that a process holds."""
    told = Path(f"/proc/{pid}/status").read_text()
    return int(told.split("VmRSS:")[1].split()[0]) / 1024


async def load(address: str, pid: int, going: Path, options: Any) -> dict[str, Any]:
    """All clients at once while the day is written."""
    async with httpx.AsyncClient(timeout=PATIENCE, verify=False) as one:
        (going / folder.METRICS).touch()  # what is kept of earlier answers is out of date
        began = time.monotonic()
        spent = processor(pid)
        page = (await one.get(address)).text
        first = time.monotonic() - began
        first_spent = processor(pid) - spent
        slugs = [part.split('"')[0] for part in page.split('data-slug="')[1:]]
        began = time.monotonic()
        for slug in slugs[1:21]:
            (await one.get(f"{address}data/{slug}?metric=agent/return")).raise_for_status()
        twenty = time.monotonic() - began
    went: list[float] = []
    wrong: list[str] = []
    spent = processor(pid)
    until = time.monotonic() + options.seconds + 5
    everybody = [client(address, until, slugs[:1], went, wrong) for _ in range(options.clients)]
    written, *heard = await asyncio.gather(
        write_a_day(going, options.seconds, options.day), *everybody
    )
    spent = processor(pid) - spent
    async with httpx.AsyncClient(timeout=PATIENCE, verify=False) as one:
        await asyncio.sleep(2.0)  # the folder is looked at every second
        day = (await one.get(f"{address}data/{slugs[0]}?metric=agent/return")).json()
    steps = day["series"]["agent/return"]["step"]
    return {
        "runs": options.runs + 1,
        "megabytes_each": options.megabytes,
        "clients": options.clients,
        "lines_written": written,
        "share_of_the_day_read": round(steps[-1] / written, 3),
        "points_of_the_day": len(steps),
        "first_answer_seconds": round(first, 3),
        "first_answer_processor_seconds": round(first_spent, 3),
        "twenty_runs_read_seconds": round(twenty, 2),
        "answers": len(went),
        "processor_milliseconds_per_answer": round(1e3 * spent / max(len(went), 1), 2),
        "answer_seconds": {q: round(float(np.quantile(went, q / 100)), 3) for q in (50, 90, 99)},
        "events_heard": [int(min(heard)), int(max(heard))],
        "errors": len(wrong),
        "first_errors": wrong[:3],
        "memory_megabytes": round(memory(pid)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--megabytes", type=float, default=10.0)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--day", type=float, default=1.0, help="share of 24 hours of metrics")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place, socket.socket() as free:
        going = make_runs(Path(place), options.runs, options.megabytes)
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        began = time.monotonic()
        command = [sys.executable, "-m", "shoal", "live", place, "--port", str(port)]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout
            server.stdout.readline()
            address = f"http://127.0.0.1:{port}/"
            while True:
                try:
                    httpx.get(f"{address}static/icon.svg", timeout=5)
                    break
                except httpx.HTTPError:
                    time.sleep(0.05)
            ready = time.monotonic() - began
            seen = painted(address)
            told = asyncio.run(load(address, server.pid, going, options))
            print(json.dumps({"start_seconds": round(ready, 2)} | seen | told, indent=1))
        finally:
            server.terminate()
            server.wait(20)


if __name__ == "__main__":
    main()
