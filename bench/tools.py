"""Load generators: how each is called, and how its own output is read."""

import dataclasses
import json
import os
import re
import shutil
import subprocess
import tempfile

CLIENT_CPU = "1"
PEER_VERSIONS = {
    "wrk": (["wrk", "-v"], r"(\d[\w.-]+)"),
    "h2load": (["h2load", "--version"], r"/([\d.]+)"),
    "ab": (["ab", "-V"], r"Version ([\d.]+)"),
    "oha": (["oha", "--version"], r"([\d.]+)"),
    "hey": (None, "0.1.5"),
    "k6": (["k6", "version"], r"v([\d.]+)"),
}


@dataclasses.dataclass
class Result:
    per_s: float
    cpu_us: float
    peak_mb: float
    output: str


@dataclasses.dataclass
class Run:
    """One tool on one question."""

    name: str
    command: list
    read: object  # output -> (requests, requests a second)
    env: dict

    def measure(self):
        """Runs it once; None, with a word on why, where it fails."""
        # A process keeps the peak of what it was forked from, and we are large: `time` is not.
        peak = tempfile.NamedTemporaryFile("r", prefix="tare-bench-", suffix=".peak")
        process = subprocess.Popen(
            ["time", "-q", "-o", peak.name, "-f", "%M", "taskset", "-c", CLIENT_CPU, *self.command],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, **self.env},
        )
        output = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        try:
            requests, per_s = self.read(output)
            cpu_s = usage.ru_utime + usage.ru_stime
            return Result(per_s, cpu_s / requests * 1e6, int(peak.read()) / 1024, output)
        except (AttributeError, KeyError, OSError, ValueError, ZeroDivisionError) as error:
            tail = " / ".join(output.strip().splitlines()[-2:])
            print(f"bench: {self.name} gave nothing to read ({error!r}): {tail}", flush=True)
            return None


def group(name):
    """Whether a tool's new TLS connections shake hands in full or resume; for the goals."""
    return "resumed" if name in ("wrk", "oha", "tare, resumed") else "full"


def number(pattern, text):
    return float(re.search(pattern, text).group(1))


def read_tare(output):
    report = first_json(output)
    return report["requests"]["completed"], report["throughput_per_s"]


def first_json(output):
    """The first object in the output; warnings may stand before and after it."""
    return json.JSONDecoder().raw_decode(output[output.index("{"):])[0]


def read_wrk(output):
    return number(r"(\d+) requests in", output), number(r"Requests/sec:\s+([\d.]+)", output)


def read_h2load(output):
    return number(r"(\d+) succeeded", output), number(r", ([\d.]+) req/s", output)


def read_ab(output):
    return number(r"Complete requests:\s+(\d+)", output), number(r"Requests per second:\s+([\d.]+)", output)


def read_oha(output):
    summary = first_json(output)
    replies = sum(summary["statusCodeDistribution"].values())
    return replies, summary["summary"]["requestsPerSec"]


def read_hey(output):
    return number(r"\[200\]\s+(\d+) responses", output), number(r"Requests/sec:\s+([\d.]+)", output)


def read_gcannon(output):
    report = first_json(output)
    return report["responses"], report["rps"]


class Box:
    """The tools that are here, as runs on a URL; `alone` leaves out all but tare."""

    def __init__(self, tare, peers, folder, seconds, alone=False):
        self.tare, self.peers, self.folder, self.seconds = tare, peers, folder, seconds
        self.alone = alone

    def path(self, tool):
        if self.alone:
            return None
        peer = os.path.join(self.peers, tool)
        return peer if os.access(peer, os.X_OK) else shutil.which(tool)

    def versions(self):
        texts = []
        for tool, (command, pattern) in PEER_VERSIONS.items():
            path = self.path(tool)
            if path and command:
                done = subprocess.run([path, *command[1:]], capture_output=True, text=True)
                texts.append(f"{tool} {re.search(pattern, done.stdout + done.stderr).group(1)}")
            elif path:
                texts.append(f"{tool} {pattern}")
        return "Peers: " + ", ".join(texts) + ". All with one thread.\n"

    def runs(self, candidates):
        """Those whose program is here."""
        runs = []
        for name, command, read, env in candidates:
            path = self.tare if command[0] == "tare" else self.path(command[0])
            if path:
                runs.append(Run(name, [path, *command[1:]], read, env))
        return runs

    def kept(self, url, connections):
        c, s = str(connections), f"{self.seconds:g}"
        whole = str(max(1, round(self.seconds)))
        return self.runs([
            ("tare", ["tare", "load", url, "-k", "-c", c, "-t", "1", "-d", s + "s", "--json", "-"], read_tare, {}),
            ("wrk", ["wrk", "-t1", "-c", c, "-d", whole + "s", url], read_wrk, {}),
            ("h2load", ["h2load", "--h1", "-t", "1", "-c", c, "-D", whole, url], read_h2load, {}),
            ("ab", ["ab", "-q", "-k", "-c", c, "-t", whole, "-n", "100000000", url], read_ab, {}),
            ("oha", ["oha", "-z", s + "s", "-c", c, "--insecure", "--no-tui", "--output-format", "json", url], read_oha, {"TOKIO_WORKER_THREADS": "1"}),
            ("hey", ["hey", "-z", s + "s", "-c", c, url], read_hey, {"GOMAXPROCS": "1"}),
            self.k6(url, c, s, reuse=True),
        ])

    def http2(self, url, connections, streams):
        c, m, s = str(connections), str(streams), f"{self.seconds:g}"
        whole = str(max(1, round(self.seconds)))
        ours = ["tare", "load", url, "--http2", "-c", c, "--streams", m, "-t", "1", "-d", s + "s", "--json", "-"]
        return self.runs([
            ("tare", ours, read_tare, {}),
            ("h2load", ["h2load", "-t", "1", "-c", c, "-m", m, "-D", whole, url], read_h2load, {}),
        ])

    def loops(self, url, connections):
        """Closed loops, for what servers see of their clients."""
        c, s = str(connections), f"{self.seconds:g}"
        whole = str(max(1, round(self.seconds)))
        tare = ["tare", "load", url, "-k", "-c", c, "-t", "1", "-d", s + "s", "--json", "-"]
        return self.runs([
            ("tare", tare, read_tare, {}),
            ("tare, epoll", [*tare, "--reactor", "epoll"], read_tare, {}),
            ("tare, polling", [*tare, "--idle", "poll"], read_tare, {}),
            ("tare, --linger 50us", [*tare, "--linger", "50us"], read_tare, {}),
            ("wrk", ["wrk", "-t1", "-c", c, "-d", whole + "s", url], read_wrk, {}),
            ("gcannon", ["gcannon", url, "-t", "1", "-c", c, "-d", whole, "--json"], read_gcannon, {}),
        ])

    def new(self, url, connections):
        c, s = str(connections), f"{self.seconds:g}"
        whole = str(max(1, round(self.seconds)))
        tare = ["tare", "load", url, "-k", "--new-connections", "-c", c, "-t", "1", "-d", s + "s", "--json", "-"]
        resumed = [("tare, resumed", [*tare, "--tls-resume"], read_tare, {})] if url.startswith("https") else []
        return self.runs([
            ("tare", tare, read_tare, {}),
            *resumed,
            ("wrk", ["wrk", "-t1", "-c", c, "-d", whole + "s", "-H", "Connection: close", url], read_wrk, {}),
            ("ab", ["ab", "-q", "-c", c, "-t", whole, "-n", "100000000", url], read_ab, {}),
            ("oha", ["oha", "-z", s + "s", "-c", c, "--insecure", "--disable-keepalive", "--no-tui", "--output-format", "json", url], read_oha, {"TOKIO_WORKER_THREADS": "1"}),
            ("hey", ["hey", "-z", s + "s", "-c", c, "-disable-keepalive", url], read_hey, {"GOMAXPROCS": "1"}),
            self.k6(url, c, s, reuse=False),
        ])

    def k6(self, url, connections, seconds, reuse):
        script = os.path.join(self.folder, "load.js")
        with open(script, "w", encoding="ascii") as file:
            file.write("""
                import http from "k6/http";
                export const options = {
                    vus: +__ENV.VUS, duration: __ENV.TIME, discardResponseBodies: true, insecureSkipTLSVerify: true,
                    noConnectionReuse: __ENV.REUSE != "yes", noVUConnectionReuse: __ENV.REUSE != "yes",
                };
                export default function () { http.get(__ENV.URL); }
            """)
        summary = os.path.join(self.folder, "k6.json")

        def read(_output):
            with open(summary, encoding="utf-8") as file:
                requests = json.load(file)["metrics"]["http_reqs"]
            os.remove(summary)
            return requests["count"], requests["rate"]

        flags = ["-e", f"VUS={connections}", "-e", f"TIME={seconds}s", "-e", f"URL={url}", "-e", f"REUSE={'yes' if reuse else 'no'}"]
        command = ["k6", "run", "--quiet", "--no-usage-report", "--summary-export", summary, *flags, script]
        return ("k6", command, read, {"GOMAXPROCS": "1"})
