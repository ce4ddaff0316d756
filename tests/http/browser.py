"""A headless Chromium, told what to do by the DevTools protocol over pipes."""

import base64
import itertools
import json
import os
import subprocess
import tempfile

import nodes


class Browser:
    def __init__(self):
        chromium = nodes.tool("chromium", "chromium")
        self.profile = tempfile.TemporaryDirectory(prefix="tutti-chromium-",
                                                   ignore_cleanup_errors=True)
        its_in, self.out = os.pipe()
        self.input, its_out = os.pipe()

        def connect():  # It reads commands from 3 and writes answers to 4.
            os.dup2(its_in, 100)
            os.dup2(its_out, 101)
            os.dup2(100, 3)
            os.dup2(101, 4)

        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        self.process = subprocess.Popen(
            [chromium, "--headless=new", *sandbox, "--remote-debugging-pipe", "--disable-gpu",
             "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars",
             f"--user-data-dir={self.profile.name}"],
            preexec_fn=connect, close_fds=False, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(its_in)
        os.close(its_out)
        self.ids, self.pending = itertools.count(1), b""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self.session = attached["sessionId"]

    def call(self, method, **parameters):
        number = next(self.ids)
        message = {"id": number, "method": method, "params": parameters}
        if session := getattr(self, "session", None):
            message["sessionId"] = session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self.pending:
                read = os.read(self.input, 1 << 20)
                assert read, "Chromium has ended"
                self.pending += read
            answer, self.pending = self.pending.split(b"\0", 1)
            answer = json.loads(answer)
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return answer["result"]

    def open(self, url, token=None, dark=False, width=1240, height=900):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.call("Network.enable")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.call("Network.setExtraHTTPHeaders", headers=headers)
        self.call("Page.navigate", url=url)

    def evaluate(self, script):
        """The value of an expression; if it is a promise, what that comes to."""
        done = self.call("Runtime.evaluate", expression=script, returnByValue=True,
                         awaitPromise=True)
        assert "exceptionDetails" not in done, done
        return done["result"].get("value")

    def text(self):
        return self.evaluate("document.body ? document.body.innerText : ''") or ""

    def wait_for(self, *words):
        """Waits until the page shows all of them; returns what it shows."""
        try:
            return nodes.wait_until(lambda: (text := self.text()) and
                                    all(word in text for word in words) and text, words)
        except AssertionError as error:
            raise AssertionError(f"{error}; it shows:\n{self.text()}") from None

    def screenshot(self, path):
        """For the whole page."""
        path.parent.mkdir(parents=True, exist_ok=True)
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True, format="png")
        path.write_bytes(base64.b64decode(shot["data"]))

    def end(self):
        self.process.terminate()
        self.process.wait(nodes.PATIENCE)
        os.close(self.out)
        os.close(self.input)
        self.profile.cleanup()
