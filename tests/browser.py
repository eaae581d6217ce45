"""A headless Chromium that tests and measurements drive over its debugging pipe: open, click, type, ask, look."""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PATIENCE = 60  # seconds without a word from the browser
PROGRAM = shutil.which("chromium")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--remote-debugging-pipe", "--hide-scrollbars"),
)


class Browser:
    """One page of a running Chromium.

    Attributes:
        complaints: What the page wrote to its console as an error, and what its policy refused.
    """

    def __init__(self, process: subprocess.Popen[bytes], reading: int, writing: int):
        self._process, self._reading, self._writing = process, reading, writing
        self._number, self._buffer, self._session = 0, b"", None
        self.complaints: list[str] = []
        self.loaded = False
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """Sends a command of the DevTools protocol and waits for its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._writing, json.dumps(message).encode() + b"\0")
        while True:
            found = self._receive()
            if found.get("id") == self._number:
                if "error" in found:
                    raise RuntimeError(f"{method}: {found['error']}")
                result: dict[str, Any] = found["result"]
                return result

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._reading], [], [], PATIENCE)
            data = os.read(self._reading, 1 << 16) if ready else b""
            if not data:
                raise RuntimeError("chromium has ended" if ready else f"chromium said nothing for {PATIENCE} seconds")
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\0")
        found: dict[str, Any] = json.loads(line)
        method, params = found.get("method"), found.get("params", {})
        self.loaded |= method == "Page.loadEventFired"
        if method == "Runtime.exceptionThrown":
            self.complaints.append(str(params["exceptionDetails"].get("exception", {}).get("description")))
        if method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.complaints.append(params["entry"]["text"])
        return found

    def open(self, url: str) -> float:
        """Opens an address; gives the seconds until it has loaded, its script run."""
        self.loaded = False
        self.send("Page.navigate", url="about:blank")  # else another place in the same page would load nothing
        while not self.loaded:
            self._receive()
        self.loaded, begin = False, time.perf_counter()
        self.send("Page.navigate", url=url)
        while not self.loaded:
            self._receive()
        self.ask("1")
        return time.perf_counter() - begin

    def open_file(self, path: Path) -> None:
        """Opens a page on a dark phone, then on a light screen, and checks that it is no wider than either."""
        for width, dark in ((390, True), (1280, False)):
            self.window(width, 900, dark=dark)
            self.open(f"file://{path}")
            assert self.ask("document.documentElement.scrollWidth") <= width

    def ask(self, expression: str) -> Any:
        """Evaluates JavaScript in the page."""
        found = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise RuntimeError(f"{expression}: {found['exceptionDetails']}")
        return found["result"].get("value")

    def click(self, selector: str, place: int = 0) -> None:
        """Clicks an element with the mouse, in its middle."""
        found = f"document.querySelectorAll({json.dumps(selector)})[{place}]"
        box = self.ask(
            f"(() => {{ const e = {found}; e.scrollIntoView({{block: 'center'}}); const r = e.getBoundingClientRect();"
            "return [r.left + r.width / 2, r.top + r.height / 2] })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], button="left", clickCount=1)

    def type(self, selector: str, text: str) -> None:
        """Types a text into a field that is clicked first."""
        self.click(selector)
        self.send("Input.insertText", text=text)

    def select(self, selector: str, value: str) -> None:
        """Chooses an option of a select by its value, as a reader does: the page hears of the change."""
        field = f"document.querySelector({json.dumps(selector)})"
        event = "new Event('change', {bubbles: true})"
        self.ask(f"(() => {{ {field}.value = {json.dumps(value)}; {field}.dispatchEvent({event}); }})()")

    def texts(self, selector: str) -> list[str]:
        """Gives the visible text of each element that a selector finds."""
        found: list[str] = self.ask(f"[...document.querySelectorAll({json.dumps(selector)})].map((e) => e.innerText)")
        return found

    def window(self, width: int, height: int, *, dark: bool = False, paper: bool = False) -> None:
        """Sets the size of the window and what the reader prefers."""
        self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", media="print" if paper else "", features=[scheme])

    def picture(self, path: Path, *, whole: bool = False) -> None:
        """Writes a picture of the window, or of the whole page."""
        data = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(data))


@contextmanager
def chromium() -> Iterator[Browser]:
    """Starts a Chromium of its own, with a profile of its own."""
    assert PROGRAM is not None, "needs the program chromium"
    to_it, writing = os.pipe()
    reading, from_it = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [PROGRAM, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        # The pipe's ends are the process's files 3 and 4.
        script = f'exec "$@" 3<&{to_it} 4>&{from_it}'
        process = subprocess.Popen(
            ["bash", "-c", script, "bash", *command],
            pass_fds=(to_it, from_it),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_it)
        os.close(from_it)
        try:
            browser = Browser(process, reading, writing)
            yield browser
            browser.send("Browser.close")
        finally:
            os.close(writing)
            os.close(reading)
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
