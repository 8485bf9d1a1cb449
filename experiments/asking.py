"""One measurement of a server: `maitred bench` around it, and what the server's processes took."""

import json
import os
import subprocess
import threading
import time

import load
import peers
import processes

LOOK_SECONDS = 0.4
# Nothing served, too late for its connections, or its objective missed: figures all the same.
EXPECTED_CODES = (0, 1, 3, 4)
KIB = 1024.0


def bench(*flags):
    """One run of `maitred bench`; its report."""
    command = [os.path.abspath(peers.Maitred.program), "bench", "--json", *map(str, flags)]
    said = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    if said.returncode not in EXPECTED_CODES or not said.stdout:
        words = said.stderr.decode(errors="replace").strip()
        raise load.WrongAnswer(f"{' '.join(command[1:])}: {words}")
    return json.loads(said.stdout)


class Census:
    """Counts a server's workers while something else goes on."""

    def __init__(self, server, meanwhile=None):
        self.server, self.meanwhile, self.most = server, meanwhile, 0
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.count)

    def count(self):
        """Looks until it is told to end."""
        while not self.over.wait(LOOK_SECONDS):
            self.most = max(self.most, len(self.server.workers()))
            if self.meanwhile is not None:
                self.meanwhile()

    def __enter__(self):
        self.most = len(self.server.workers())
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()


def ask(server, *flags, keep=(), meanwhile=None):
    """Has a server asked; the figures of it, and what else of the report is to be kept.

    `meanwhile` is called again and again until the answers are there.
    """
    watch = load.Watch(server.leaders, getattr(server, "besides", ()))
    with Census(server, meanwhile) as census:
        found = bench(*flags)
    spent = watch.read()
    # The processor time is that of the warm-up, too.
    served = found["requests"]["served"] + ((found["warm_up"] or {}).get("served") or 0)
    return {
        **figures(found),
        **{name: found[name] for name in keep},
        "cpu_ms": spent.server * 1e3 / served if served else None,
        "workers": census.most,
        "foreign": spent.foreign_share,
        **size(server),
    }


def size(server):
    """How `pm = auto` has decided, in the words of `maitred status`; nothing of others."""
    if server.setting.pool.get("pm") != "auto":
        return {}
    command = [os.path.abspath(peers.Maitred.program), "status", next(iter(server.pools))]
    command += ["--admin-socket", server.admin_socket()]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    lines = (line.split(maxsplit=1) for line in said.splitlines())
    words = {line[0]: line[1].strip() for line in lines if len(line) == 2}
    if "size" not in words:
        return {}
    return {"size": f"{words['size']} ({words.get('terms', '')})"}


def figures(found):
    """What is kept of a report, in requests, requests a second and milliseconds."""
    requests, times = found["requests"], found["corrected"]
    kept = {
        name: requests[name]
        for name in ("sent", "served", "refused", "failed", "timed_out", "wrong", "rate", "goodput")
    }
    ended = sum(kept[name] for name in ("served", "refused", "failed", "timed_out", "wrong"))
    kept["served_share"] = kept["served"] / ended if ended else None
    for name in ("p50", "p95", "p99", "mean", "max", "min"):
        kept[f"{name}_ms"] = None if times[name] is None else times[name] * 1e3
    kept["valid"] = found["valid"]
    kept["causes"] = {each["cause"]: each["count"] for each in found["causes"]}
    return kept


def url(server, path):
    """Where a page is."""
    return f"http://127.0.0.1:{server.port}{path}"


def memory(server):
    """A server's memory in MiB: its workers' by `ps`, shared out and their own; and all of it."""
    found = {"rss_mb": 0.0, "pss_mb": 0.0, "private_mb": 0.0, "all_pss_mb": 0.0, "count": 0}
    workers = set(server.workers())
    for pid in processes.tree(server.leaders):
        try:
            proportional = processes.proportional_kb(pid) / KIB
            found["all_pss_mb"] += proportional
            if pid not in workers:
                continue
            found["count"] += 1
            found["pss_mb"] += proportional
            found["private_mb"] += processes.private_kb(pid) / KIB
            found["rss_mb"] += processes.rollup_kb(pid, "Rss:") / KIB
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def first_answers(server, path, count=3):
    """How long each of a server's first requests takes, in ms."""
    taken = []
    for _ in range(count):
        began = time.monotonic()
        status = load.fetch(server.port, load.Load(path, 1, keep_alive=False))[0]
        if status != 200:
            raise load.WrongAnswer(f"{server.name}: {path} has status {status}")
        taken.append((time.monotonic() - began) * 1e3)
    return taken
