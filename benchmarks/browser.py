"""A page in Chromium: `python -m benchmarks.browser PAGE [FOLDER]` -> a line per width, and screenshots in FOLDER.

At each width (pixels of the window) the page is loaded without a network, three times, in a new tab. Times are seconds
by the browser's clock, the median: `paint` until the first content is drawn, `load` until everything is loaded, and
`answer` until the frame after a word is typed into the page's filter or a click on a column. `too wide` is by how many
pixels the page is wider than the window; `asked for` are the addresses that it wanted beside itself. Needs `chromium`.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

WIDTHS, HEIGHT, TIMES = (1400, 420), 900, 3
LOADED = """JSON.stringify({
  load: performance.getEntriesByType("navigation")[0].loadEventEnd / 1000,
  paint: (performance.getEntriesByName("first-contentful-paint")[0] || {startTime: NaN}).startTime / 1000,
  wide: document.documentElement.scrollWidth - innerWidth, tall: document.documentElement.scrollHeight,
  elements: document.getElementsByTagName("*").length})"""
ANSWER = """new Promise(done => {
  const box = document.querySelector("input[type=search]"), head = document.querySelector("table.large th");
  const start = performance.now(), then = () => requestAnimationFrame(() => setTimeout(
    () => done((performance.now() - start) / 1000)));
  if (%s) { if (!box) return done(NaN); box.value = "mode"; box.dispatchEvent(new Event("input", {bubbles: true})) }
  else { if (!head) return done(NaN); head.click() }
  then();
})"""


class Tab:
    """A tab of the browser, driven by the DevTools protocol: `await tab("Page.navigate", url=...)`."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket, self.numbers, self.events = socket, itertools.count(1), list[dict[str, Any]]()

    async def __call__(self, method: str, **params: Any) -> dict[str, Any]:
        number = next(self.numbers)
        await self.socket.send_json({"id": number, "method": method, "params": params})
        while (message := await self.socket.receive_json()).get("id") != number:
            self.events.append(message)
        return message["result"]

    async def event(self, method: str) -> None:
        """Wait for an event."""
        while not any(message.get("method") == method for message in self.events):
            self.events.append(await self.socket.receive_json())

    async def value(self, expression: str) -> Any:
        """What JavaScript computes."""
        found = await self("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        return found["result"].get("value", found["result"].get("unserializableValue"))


@asynccontextmanager
async def browser(profile: Path) -> AsyncIterator[str]:
    """A Chromium without a window; the address of its DevTools."""
    words = ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0"]
    with subprocess.Popen([*words, f"--user-data-dir={profile}"], stderr=subprocess.DEVNULL) as process:
        try:
            while not (said := profile / "DevToolsActivePort").is_file() or not said.read_text():
                await asyncio.sleep(0.1)
            yield f"http://127.0.0.1:{said.read_text().split()[0]}"
        finally:
            process.terminate()


@asynccontextmanager
async def tab(session: aiohttp.ClientSession, tools: str, width: int) -> AsyncIterator[Tab]:
    async with session.put(f"{tools}/json/new?about:blank") as answer:
        opened = await answer.json()
    async with session.ws_connect(opened["webSocketDebuggerUrl"], max_msg_size=0) as socket:
        made = Tab(socket)
        for domain in ("Page", "Runtime", "Network", "Log"):
            await made(f"{domain}.enable")
        await made(
            "Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=-1, uploadThroughput=-1
        )
        size = {"width": width, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": width < 600}
        await made("Emulation.setDeviceMetricsOverride", **size)
        yield made
        await made("Page.close")


async def measure(page: Path, folder: Path) -> None:
    """Print the lines and write `WIDTH.png`, `WIDTH-whole.png` and `WIDTH-no-script.png`."""
    with tempfile.TemporaryDirectory() as profile:
        async with browser(Path(profile)) as tools, aiohttp.ClientSession() as session:
            for width in WIDTHS:
                found = [await _load(session, tools, page, width, folder) for _ in range(TIMES)]
                middle = {key: statistics.median(one[key] for one in found) for key in found[0] if key != "asked"}
                times = ", ".join(f"{key} {middle.pop(key):.2f} s" for key in ("paint", "load", "filter", "sort"))
                counts = ", ".join(f"{key} {value:,.0f}" for key, value in middle.items())
                print(f"{width} pixels: {times}; {counts}; asked for: {found[0]['asked'] or 'nothing'}", flush=True)
                await _without_scripts(session, tools, page, width, folder)


async def _load(session: aiohttp.ClientSession, tools: str, page: Path, width: int, folder: Path) -> dict[str, Any]:
    async with tab(session, tools, width) as one:
        await one("Page.navigate", url=page.absolute().as_uri())
        await one.event("Page.loadEventFired")
        await one.value("new Promise(done => requestAnimationFrame(() => setTimeout(done, 100)))")
        found = json.loads(await one.value(LOADED))
        await _picture(one, folder / f"{width}.png")
        await _picture(one, folder / f"{width}-whole.png", whole=found["tall"])
        found["filter"] = float(await one.value(ANSWER % "true"))
        await _picture(one, folder / f"{width}-filtered.png")
        found["sort"] = float(await one.value(ANSWER % "false"))
        urls = [m["params"]["request"]["url"] for m in one.events if m.get("method") == "Network.requestWillBeSent"]
        found["asked"] = [url for url in urls if not url.startswith(("data:", page.absolute().as_uri()))]
        found["errors"] = sum(m.get("method") == "Runtime.exceptionThrown" for m in one.events)
        return found


async def _without_scripts(session: aiohttp.ClientSession, tools: str, page: Path, width: int, folder: Path) -> None:
    async with tab(session, tools, width) as one:
        await one("Emulation.setScriptExecutionDisabled", value=True)
        await one("Page.navigate", url=page.absolute().as_uri())
        await one.event("Page.loadEventFired")
        await _picture(one, folder / f"{width}-no-script.png")


async def _picture(one: Tab, path: Path, whole: int | None = None) -> None:
    clip = {}
    if whole:
        width = await one.value("innerWidth")
        box = {"x": 0, "y": 0, "width": width, "height": min(whole, 15_000), "scale": 1}
        clip = {"captureBeyondViewport": True, "clip": box}
    path.write_bytes(base64.b64decode((await one("Page.captureScreenshot", **clip))["data"]))


if __name__ == "__main__":
    target = Path(sys.argv[2] if len(sys.argv) > 2 else tempfile.mkdtemp())
    target.mkdir(parents=True, exist_ok=True)
    asyncio.run(measure(Path(sys.argv[1]), target))
    print(f"screenshots: {target}")
