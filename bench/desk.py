"""A folder with two identical nginx, and tare's comparisons of what is in it."""

import json
import os
import subprocess
import time

import servers

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TARE = os.environ.get("TARE", os.path.join(ROOT, "target/release/tare"))

# A run that is only to show that it works: brief by its rounds, not by the clock.
SMOKE = ["--rounds", "2", "--max-time", "2m"]


class Desk:
    """A folder with two identical nginx configurations, and a store."""

    smoke = False

    def __init__(self, folder):
        self.folder = folder
        os.chmod(folder, 0o755)
        os.makedirs(os.path.join(folder, "html"))
        with open(os.path.join(folder, "html/index.html"), "w", encoding="ascii") as page:
            page.write("x" * 612)
        self.ports = [servers.free_port(), servers.free_port()]
        for name, port in zip("ab", self.ports):
            with open(self.config(name), "w", encoding="ascii") as config:
                config.write(
                    f"user root; daemon off; worker_processes 1; pid {folder}/{name}.pid;"
                    f" error_log stderr error; events {{ worker_connections 1024; }}"
                    f" http {{ access_log off; keepalive_requests 1000000000; root {folder}/html;"
                    f" server {{ listen 127.0.0.1:{port}; }} }}\n"
                )

    def config(self, name):
        return os.path.join(self.folder, f"{name}.conf")

    def nginx(self):
        """Arguments that compare the two nginx, started by tare."""
        words = []
        for name, port in zip("ab", self.ports):
            words += [f"{name}=http://127.0.0.1:{port}/", f"--launch={name}=exec nginx -c {self.config(name)}"]
        return words

    def compare(self, *words):
        """Runs tare; its report, and the seconds that took."""
        environment = dict(os.environ, XDG_DATA_HOME=self.folder)
        environment.pop("TARE_STORE", None)
        if self.smoke:
            # Its own time limit may be shorter than a round on a slow machine.
            at = words.index("--max-time") if "--max-time" in words else len(words)
            words = (*words[:at], *words[at + 2 :], *SMOKE)
        began = time.monotonic()
        done = subprocess.run(
            [TARE, "compare", "--json", "-", "-q", *words], capture_output=True, text=True, env=environment, check=False
        )
        if done.returncode not in (0, 6):
            raise SystemExit(f"bench: tare compare {' '.join(words)}\n{done.stderr}")
        return json.loads(done.stdout), time.monotonic() - began

    def tare(self, *words):
        """What tare prints."""
        environment = dict(os.environ, XDG_DATA_HOME=self.folder)
        environment.pop("TARE_STORE", None)
        return subprocess.run([TARE, *words], capture_output=True, text=True, env=environment, check=True).stdout


def asked(report):
    found = [c for c in report["comparisons"] if c["asked"]]
    if not found:
        raise SystemExit(f"bench: too few rounds to compare: {report['run']}")
    return found[0]


def half(comparison):
    bounds = comparison["overhead_percent"]
    return (bounds["upper"] - bounds["lower"]) / 2
