"""Latencies against a known answer: `tare target` says what is true, the tools what they saw."""

import json
import statistics
import urllib.request

import servers
import tools


def measure(box, rounds, seconds):
    """The section on truth, and its goals as (text, met)."""
    lines, goals = ["## Truth, against `tare target`", ""], []
    rates(box, rounds, seconds, lines, goals)
    delay(box, rounds, seconds, lines, goals)
    queue(box, rounds, seconds, lines, goals)
    stall(box, rounds, seconds, lines, goals)
    return "\n".join(lines), goals


def load(box, url, *flags):
    run = tools.Run("tare", [box.tare, "load", url, "-t", "1", "--json", "-", *flags], tools.read_tare, {})
    result = run.measure()
    return tools.first_json(result.output) if result else None


def median(reports, *path):
    values = []
    for report in reports:
        value = report
        for key in path:
            value = value and value[key]
        if value is not None:
            values.append(value)
    return statistics.median(values) if values else float("nan")


def rates(box, rounds, seconds, lines, goals):
    """Open loop at three rates against an idle server: is the rate kept, are requests sent in time?"""
    lines += [
        "Open loop, a server that answers at once, 50 connections:", "",
        "| asked/s | achieved | send lag p50 µs | send lag p99 µs | from due p50 µs | p99 µs |",
        "|---:|---:|---:|---:|---:|---:|",
    ]
    with servers.Target(box.tare) as target:
        for rate in (1_000, 10_000, 20_000):
            flags = ["-c", "50", "--rate", str(rate), "-d", f"{seconds:g}s"]
            reports = [r for r in (load(box, target.url, *flags) for _ in range(rounds)) if r]
            achieved = median(reports, "throughput_per_s") / rate
            lag50, lag99 = (median(reports, "latency", "send_lag", key) / 1e3 for key in ("ns_p50", "ns_p99"))
            due50, due99 = (median(reports, "latency", "from_due", key) / 1e3 for key in ("ns_p50", "ns_p99"))
            lines.append(f"| {rate:,} | {achieved:.1%} | {lag50:.1f} | {lag99:.1f} | {due50:.0f} | {due99:.0f} |")
            if rate == 20_000:
                goals.append((f"send lag p99 at 20,000/s: {lag99:.1f} µs (≤ 100)", lag99 <= 100))
    lines.append("")


def delay(box, rounds, seconds, lines, goals):
    """A fixed delay of 5 ms at 2,000/s: what does each tool make of it?"""
    lines += [
        "A delay of exactly 5 ms, at 2,000/s (tools without a rate: 10 connections, which is as many a second):", "",
        "| tool | p50 error µs | p99 error µs |", "|---|---:|---:|",
    ]
    with servers.Target(box.tare, "--delay", "5ms") as target:
        whole = str(max(1, round(seconds)))
        rows = {
            "tare --rate": lambda: from_tare(load(box, target.url, "-c", "50", "--rate", "2000", "-d", f"{seconds:g}s")),
            "tare": lambda: from_tare(load(box, target.url, "-c", "10", "-d", f"{seconds:g}s")),
            "wrk": lambda: from_wrk(output(box, "wrk", "-t1", "-c10", "-d", whole + "s", "--latency", target.url)),
            "oha -q": lambda: from_oha(output(box, "oha", "-z", f"{seconds:g}s", "-c", "50", "-q", "2000", "--latency-correction", "--no-tui", "--output-format", "json", target.url)),
        }
        found = {name: [] for name in rows}
        for _ in range(rounds):
            for name, row in rows.items():
                seen = row()
                if seen:
                    found[name].append(seen)
        for name, seen in found.items():
            if not seen:
                continue
            p50, p99 = (statistics.median(column) - 5_000 for column in zip(*seen))
            lines.append(f"| {name} | {p50:+.0f} | {p99:+.0f} |")
            if name == "tare --rate":
                goals.append((f"5 ms at 2,000/s: p50 {p50:+.0f} µs, p99 {p99:+.0f} µs (within 100)", max(abs(p50), abs(p99)) <= 100))
    lines.append("")


def stats(url):
    with urllib.request.urlopen(url.rstrip("/") + "/stats", timeout=10) as reply:
        return json.load(reply)


def queue(box, rounds, seconds, lines, goals):
    """Poisson arrivals into one worker of 1 ms at 70 % load.

    The mean of such a queue over a minute is known to some 3 % only, whoever measures it: its rare long ones decide. What the
    client sees is therefore held to what the target itself counted for the very same requests, and to the way there and back,
    which the same load on a target without a service takes; and the target's count, over all rounds, to M/D/1."""
    flags = lambda seed: ["-c", "200", "--rate", "700", "--poisson", "--seed", str(seed), "-d", f"{seconds * 10:g}s"]  # noqa: E731
    seen = lambda report: report["latency"]["from_due"]["ns_mean"] / 1e6  # noqa: E731
    known = 1.0 + 0.7 / (2 * (1 - 0.7))
    errors, targets, paths = [], [], []
    with servers.Target(box.tare, "--service-time", "1ms") as target, servers.Target(box.tare) as empty:
        for seed in range(rounds):
            before = stats(target.url)
            report, path = load(box, target.url, *flags(seed)), load(box, empty.url, *flags(seed))
            after = stats(target.url)
            if not report or not path:
                continue
            spent = {key: after[key] - before[key] for key in after}
            targets.append((spent["waited_ns"] + spent["late_ns"]) / spent["replies"] / 1e6)
            paths.append(seen(path))
            errors.append(seen(report) / (targets[-1] + paths[-1]) - 1)
    mean, worst = statistics.mean(targets), max(errors, key=abs)
    lines += [
        f"Poisson arrivals at 700/s into one worker of 1 ms, {len(errors)} times: the target counted {mean:.3f} ms on average, "
        f"M/D/1 says {known:.3f} ms ({mean / known - 1:+.1%}); the way there and back takes {statistics.mean(paths):.3f} ms. The client's "
        f"mean is off the sum of both by {', '.join(f'{e:+.1%}' for e in errors)}.",
        "",
    ]
    goals.append((f"a queue's mean: off by {worst:+.1%} at most (within 1.5 %)", abs(worst) <= 0.015))
    goals.append((f"the target's queue against M/D/1: {mean / known - 1:+.1%} (within 5 %)", abs(mean / known - 1) <= 0.05))


def stall(box, rounds, seconds, lines, goals):
    """100 ms of stall each second at 1,000/s: who sees it?"""
    # Long, and begun after the first stall: one that is cut by an edge is a smaller part of it.
    length = max(5, round(seconds * 20))
    with servers.Target(box.tare, "--stall", "100ms", "--every", "1s") as target:
        reports, hidden = [], []
        for _ in range(max(1, rounds // 2)):
            report = load(box, target.url, "-c", "5", "--rate", "1000", "--warmup", "1s", "-d", f"{length}s")
            if report:
                reports.append(report)
            if box.path("wrk"):
                seen = from_wrk(output(box, "wrk", "-t1", "-c5", "-d", f"{length}s", "--latency", target.url))
                if seen:
                    hidden.append(seen)
    due99, sent99 = (median(reports, "latency", series, "ns_p99") / 1e6 for series in ("from_due", "from_sent"))
    due95 = median(reports, "latency", "from_due", "ns_p95") / 1e6
    # 100 of 1,000 requests wait 100 … 1 ms: 5 % of all over 50 ms, 1 % over 90 ms.
    lines.append(f"A stall of 100 ms each second, 1,000/s, 5 connections: from due p95 {due95:.1f} ms (arithmetic: 50), p99 {due99:.1f} ms (arithmetic: 90); from sent p99 {sent99:.3f} ms.")
    if hidden:
        wrk99 = statistics.median(seen[1] for seen in hidden) / 1e3
        lines.append(f"wrk, on the same server in a closed loop of 5: p99 {wrk99:.3f} ms.")
    goals.append((f"stall: p99 from due {due99 / 90 - 1:+.1%} of 90 ms (within 5 %)", abs(due99 / 90 - 1) <= 0.05))
    goals.append((f"stall: p95 from due {due95 / 50 - 1:+.1%} of 50 ms (5 % of requests; within 5 %)", abs(due95 / 50 - 1) <= 0.05))


def output(box, tool, *args):
    if not box.path(tool):
        return None
    env = {"TOKIO_WORKER_THREADS": "1"}
    result = tools.Run(tool, [box.path(tool), *args], lambda _: (1, 1), env).measure()
    return result and result.output


def from_tare(report):
    series = report and report["latency"][report["latency"]["headline"]]
    return series and series["ns_p99"] and (series["ns_p50"] / 1e3, series["ns_p99"] / 1e3)


def from_wrk(text):
    scale = {"us": 1, "ms": 1e3, "s": 1e6}
    found = text and [tools.re.search(rf"{p}%\s+([\d.]+)(us|ms|s)", text) for p in (50, 99)]
    return found and all(found) and tuple(float(m.group(1)) * scale[m.group(2)] for m in found)


def from_oha(text):
    if not text:
        return None
    percentiles = tools.first_json(text)["latencyPercentiles"]
    return percentiles["p50"] * 1e6, percentiles["p99"] * 1e6
