"""What planted work costs, by other instruments than tare's: wrk, and CPU time by /proc."""

import math
import os
import re
import statistics
import subprocess
import time
from typing import NamedTuple

import servers
from desk import TARE

THROUGHPUT, CPU = "throughput_per_s", "server_cpu_ns_per_request"
WORK_US = 20


class Overhead(NamedTuple):
    percent: float
    half: float  # of its 95 % interval
    own_us: float  # what a request takes without the work, by this metric


def in_turns(more_us, connections, pairs):
    """What `more_us` of work costs by other instruments than tare's: wrk on the two targets in turns of a second, pinned as tare pins,
    and CPU time by /proc. An `Overhead` for each metric.

    The nominal work is not the truth: a server that is busy for longer lets its client fall asleep, and pays for waking it.
    """
    targets, ports = [], [servers.free_port(), servers.free_port()]
    try:
        for port, work in zip(ports, (WORK_US, WORK_US + more_us)):
            words = ["taskset", "-c", "0", TARE, "target", "--listen", f"127.0.0.1:{port}", "--busy", f"{work}us"]
            targets.append(subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        time.sleep(1)

        def cpu_ns(target):
            threads = f"/proc/{target.pid}/task"
            return sum(int(open(f"{threads}/{thread}/schedstat", encoding="ascii").read().split()[0]) for thread in os.listdir(threads))

        def second(which):
            before = cpu_ns(targets[which])
            words = ["taskset", "-c", "1", "wrk", "-t1", f"-c{connections}", "-d1s", f"http://127.0.0.1:{ports[which]}/"]
            printed = subprocess.run(words, capture_output=True, text=True, check=True).stdout
            replies = int(re.search(r"(\d+) requests in", printed)[1])
            per_s = float(re.search(r"Requests/sec:\s+([\d.]+)", printed)[1])
            return {THROUGHPUT: per_s, CPU: (cpu_ns(targets[which]) - before) / replies}

        logs, own_us = {THROUGHPUT: [], CPU: []}, {THROUGHPUT: [], CPU: []}
        for pair in range(pairs):
            found = {which: second(which) for which in ((0, 1) if pair % 2 else (1, 0))}
            for metric, ratios in logs.items():
                ratios.append(math.log(found[1][metric] / found[0][metric]))
                own_us[metric].append(1e6 / found[0][metric] if metric == THROUGHPUT else found[0][metric] / 1000)
    finally:
        for target in targets:
            target.kill()
            target.wait()
    truth = {}
    for metric, ratios in logs.items():
        calm = sorted(ratios)[pairs // 8 : pairs - pairs // 8]
        sign = -1 if metric == THROUGHPUT else 1
        error = statistics.stdev(calm) / math.sqrt(len(calm))
        percent, width = sign * math.expm1(statistics.mean(calm)) * 100, t_quantile(len(calm) - 1) * error * 100
        truth[metric] = Overhead(percent, width, statistics.median(own_us[metric]))
    return truth


def t_quantile(degrees):
    """Student's, of 95 % both sides: Cornish and Fisher's series, right to 0.002 from 8 degrees on."""
    z = 1.959964
    terms = [z, (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96, (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384]
    return sum(term / degrees**power for power, term in enumerate(terms))
