"""
A real Chromium, driven by its DevTools protocol over aiohttp: no further dependency, and no browser of its own.

Playwright and Selenium bring a driver program each, of a version that has to fit the browser. What the tests need is a
handful of commands of a protocol that Chromium keeps stable. The browser is the one of the machine (`apt install
chromium`); where there is none, tests are skipped, and say so.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import os
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PATIENCE = 30.0
"""Seconds in which anything that is waited for must come."""
_OPTIONS = (
    "--headless=new",
    "--remote-debugging-port=0",
    "--remote-debugging-address=127.0.0.1",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
)


def chromium() -> str:
    """The path of the browser. Skips the test where there is none."""
    named = os.environ.get("CHROMIUM", "")
    found = next(filter(None, map(shutil.which, [named] if named else NAMES)), None)
    if found is None:
        pytest.skip("no Chromium on this machine: apt install chromium, or name one in CHROMIUM")
    return found


class Tab:
    """One tab. `errors` are what the page wrote to its console as an error, or threw."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, session: str) -> None:
        self.errors: list[str] = []
        self.received: dict[str, float] = {}
        """Bytes on the wire, by address."""
        self.trace: list[dict[str, Any]] = []
        """Events of the trace since `start_trace`."""
        self._trace_is_whole = asyncio.Event()
        self._urls: dict[str, str] = {}
        self._socket = socket
        self._session = session
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """A command of the DevTools protocol. Raises RuntimeError when the browser refuses it."""
        number = next(self._numbers)
        self._answers[number] = asyncio.get_running_loop().create_future()
        message = {"id": number, "method": method, "params": parameters, "sessionId": self._session}
        await self._socket.send_json({key: each for key, each in message.items() if each != ""})
        async with asyncio.timeout(PATIENCE):
            answer = await self._answers[number]
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        result: dict[str, Any] = answer.get("result", {})
        return result

    async def evaluate(self, script: str) -> Any:
        """The value of *script* in the page; it may be a promise."""
        answer = await self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{script}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    async def until(self, script: str) -> None:
        """Wait until *script* is true in the page, judged before each picture. Raises TimeoutError."""
        wait = f"""new Promise((done, fail) => {{
            const ends = Date.now() + {PATIENCE * 1000 - 2000};
            const look = () => {{
                let value; try {{ value = {script}; }} catch {{ value = null; }}
                if (value) done(true);
                else if (Date.now() > ends) done(null);
                else setTimeout(look, 10);
            }};
            look();
        }})"""
        if not await self.evaluate(wait):
            text = await self.evaluate("document.body.innerText")
            raise TimeoutError(f"{script} never came; the page reads:\n{text[:3000]}\nerrors: {self.errors}")

    async def open(self, url: str) -> None:
        """Go there, and wait until the page is loaded."""
        await self.call("Page.navigate", url=url)
        await self.until("document.readyState === 'complete'")

    async def text(self, selector: str = "body") -> str:
        """What a person reads there."""
        found: str = await self.evaluate(f"document.querySelector({selector!r})?.innerText ?? ''")
        return found

    async def press(self, key: str) -> None:
        """Press and release a key, such as `Tab`."""
        code = {"Tab": 9, "Enter": 13, "ArrowRight": 39, "ArrowDown": 40, "End": 35, "Home": 36}[key]
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            down = text if kind == "keyDown" else {}
            await self.call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **down)

    async def resize(self, width: int, height: int, *, mobile: bool = False) -> None:
        """The size of the window, in CSS pixels."""
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile
        )

    async def prefer(self, scheme: str) -> None:
        """`dark` or `light`."""
        await self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    async def picture(self, path: Path, *, whole: bool = False) -> None:
        """A PNG of the window, or of the *whole* page."""
        answer = await self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(answer["data"]))

    async def start_trace(self, *categories: str) -> None:
        """Begin to record what the browser does, as the panel Performance of its DevTools does."""
        self.trace.clear()
        self._trace_is_whole.clear()
        config = {"includedCategories": list(categories)}
        await self.call("Tracing.start", traceConfig=config, transferMode="ReportEvents")

    async def end_trace(self) -> list[dict[str, Any]]:
        """The events: `name`, `ts` and `dur` in microseconds, `pid`, `tid`."""
        await self.call("Tracing.end")
        async with asyncio.timeout(PATIENCE):
            await self._trace_is_whole.wait()
        return self.trace

    def ingest(self, message: dict[str, Any]) -> None:
        """One message of the browser."""
        if (number := message.get("id")) in self._answers:
            self._answers.pop(number).set_result(message)
            return
        given = message.get("params", {})
        match message.get("method"):
            case "Runtime.consoleAPICalled" if given["type"] in ("error", "assert", "warning"):
                self.errors.append(" ".join(str(each.get("value", each)) for each in given["args"]))
            case "Runtime.exceptionThrown":
                details = given["exceptionDetails"]
                self.errors.append(details.get("exception", {}).get("description", details["text"]))
            case "Log.entryAdded" if given["entry"]["level"] in ("error", "warning"):
                self.errors.append(given["entry"]["text"])
            case "Network.requestWillBeSent":
                self._urls[given["requestId"]] = given["request"]["url"]
            case "Tracing.dataCollected":
                self.trace.extend(given["value"])
            case "Tracing.tracingComplete":
                self._trace_is_whole.set()
            case "Network.dataReceived":
                url = self._urls.get(given["requestId"], "")
                self.received[url] = self.received.get(url, 0) + given["encodedDataLength"]


@asynccontextmanager
async def browsing(profile: Path) -> AsyncIterator[Callable[[], Any]]:
    """A browser with its *profile* there; call the value to open a tab."""
    program = chromium()
    options = [*_OPTIONS, *(["--no-sandbox"] if os.geteuid() == 0 else []), f"--user-data-dir={profile}"]
    process = await asyncio.create_subprocess_exec(
        program, *options, "about:blank", stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    try:
        async with aiohttp.ClientSession() as client, client.ws_connect(await _address(process), max_msg_size=0) as ws:
            tabs: dict[str, Tab] = {}
            root = tabs[""] = Tab(ws, "")
            reading = asyncio.create_task(_read(ws, tabs))
            try:
                yield lambda: _new_tab(root, ws, tabs)
            finally:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)
    finally:
        if process.returncode is None:
            process.terminate()
        assert process.stderr is not None
        await process.stderr.read()
        await process.wait()
        shutil.rmtree(profile, ignore_errors=True)


async def _address(process: asyncio.subprocess.Process) -> str:
    assert process.stderr is not None
    said = []
    async with asyncio.timeout(PATIENCE):
        async for line in process.stderr:
            said.append(line.decode(errors="replace"))
            if said[-1].startswith("DevTools listening on "):
                return said[-1].split()[-1]
    pytest.skip(f"Chromium does not start here: {''.join(said)[-500:]}")


async def _read(ws: aiohttp.ClientWebSocketResponse, tabs: dict[str, Tab]) -> None:
    async for message in ws:
        given = message.json()
        if (tab := tabs.get(given.get("sessionId", ""))) is not None:
            tab.ingest(given)


async def _new_tab(root: Tab, ws: aiohttp.ClientWebSocketResponse, tabs: dict[str, Tab]) -> Tab:
    target = await root.call("Target.createTarget", url="about:blank")
    attached = await root.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
    tab = tabs[attached["sessionId"]] = Tab(ws, attached["sessionId"])
    for domain in ("Page", "Runtime", "Log", "Network"):
        await tab.call(f"{domain}.enable")
    return tab
