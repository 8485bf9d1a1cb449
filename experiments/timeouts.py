"""What three time-outs do to a script that sleeps, one that loops, and a database that hangs."""

import concurrent.futures
import contextlib
import socket
import time

import experiment
import servers
from experiment import Arm
from records import shown
from servers import Setting

SCRIPT, POOL, WEB = 2, 3, 4
WORK_MS = 9000
LOOP_MS = 11000
WAIT_SECONDS = 12
SLEEPS, LOOPS, HANGS = "sleeps", "loops", "database hangs"
SETS = {
    f"script {SCRIPT} s": (True, False, False),
    f"pool {POOL} s": (False, True, False),
    f"web server {WEB} s": (False, False, True),
    f"all: {SCRIPT}, {POOL}, {WEB} s": (True, True, True),
}


class TimeOuts(experiment.Experiment):
    """One worker; what the client gets, and when the worker is free."""

    id = "timeouts"
    title = "Three time-outs, and what they end"
    source = "five settings that decide p99"
    concluded = (
        "Script, pool and web server have a time-out each, and the shortest wins; a ladder of 30,"
        " 35 and 40 s, each a net for the one before; `max_execution_time` «cannot fire» in a sleep"
        " or a blocked socket, only the master's signal frees the worker."
    )
    how = (
        f"The article's ladder by ten: `max_execution_time` {SCRIPT} s, `request_terminate_timeout`"
        f" {POOL} s, the web server's time-out (`fastcgi_read_timeout`, `ProxyTimeout`, Apache's"
        f" `Timeout`) {WEB} s, each alone and all together, one worker. A script that sleeps for"
        f" {WORK_MS / 1000:g} s, one that computes for {LOOP_MS / 1000:g} s, and one that asks a"
        " database which takes the connection and never speaks. Measured: what the client gets and"
        " when, and when the next request has an answer, so that the worker is free again. maitred"
        " has no time-out for a script in its front: «web server» alone does nothing there;"
        " mod_php has none of a pool."
    )
    question = "Which time-out ends a sleeping script, a loop, a hung database?"
    columns = (
        experiment.Column("status", "client gets"),
        experiment.Column("seconds", "after s", ".1f"),
        experiment.Column("free", "worker free after s", ".1f"),
    )
    loads = (SLEEPS, LOOPS, HANGS)

    def arms(self):
        found = []
        for name, (script, pool, web) in SETS.items():
            how = {
                "ini": {"max_execution_time": str(SCRIPT if script else 0)},
                "terminate": POOL if pool else 0,
                "read_timeout": WEB if web else 300,
            }
            for key in servers.KINDS:
                if key == "prefork" and pool and not script:
                    continue
                apache = servers.prefork(1, 1, 1, 1) if key == "prefork" else {}
                found.append(Arm(key, Setting(name, servers.static(1), apache, **how)))
        return found

    def measure(self, lab):
        lab.root()
        # Only the loops compute, so a server's settings can be tried at a time.
        for turn in range(lab.options.rounds):
            for key in servers.KINDS:
                some = [arm for arm in self.arms() if arm.server == key]
                with concurrent.futures.ThreadPoolExecutor(max(len(some), 1)) as pool:
                    tried = [
                        pool.submit(
                            lambda arm=arm: list(
                                lab.guarded(self, arm, turn, lambda: self.measure_arm(lab, arm))
                            )
                        )
                        for arm in some
                    ]
                for each in tried:
                    yield from each.result()

    def measure_arm(self, lab, arm):
        with hung_database() as port:
            paths = {
                SLEEPS: f"/sleep.php?ms={WORK_MS}",
                LOOPS: f"/loop.php?ms={LOOP_MS}",
                HANGS: f"/hung.php?port={port}",
            }
            for name, path in paths.items():
                with lab.serving(arm) as server:
                    began = time.monotonic()
                    status = fate(server, path)
                    taken = time.monotonic() - began
                    free = free_again(server)
                    yield name, {
                        "status": status,
                        "seconds": taken,
                        "free": time.monotonic() - began if free else None,
                    }

    def findings(self, records):
        lines = []
        for name in self.loads:
            for which in SETS:
                parts = []
                for key in servers.KINDS:
                    get = lambda figure, key=key, which=which, name=name: records.values(
                        (key, which, name), figure
                    )
                    if get("status"):
                        free = get("free")
                        after = (
                            f"worker free after {max(free):.1f} s"
                            if free
                            else f"worker not free within {WAIT_SECONDS} s more"
                        )
                        parts.append(
                            f"{servers.NAMES[key]} {get('status')[0]} after"
                            f" {max(get('seconds')):.1f} s, {after}"
                        )
                lines.append(
                    f"A script that {name if name != HANGS else 'waits for a database that hangs'},"
                    f" {which}: {'; '.join(parts)}."
                )
        return lines

    def verdict(self, records):
        names = list(SETS)
        get = lambda which, load, figure: records.values(("nginx", which, load), figure)
        sleeps, web = get(names[0], SLEEPS, "seconds"), get(names[2], SLEEPS, "free")
        pool = get(names[1], HANGS, "free")
        if not (sleeps and web and pool):
            return ""
        return (
            "«The shortest wins» is wrong, since the clocks differ: with `max_execution_time`"
            f" {SCRIPT} s a sleep went on for {max(sleeps):.0f} s. That only the pool's limit frees"
            f" a worker is right: after {max(pool):.1f} s where a database hung. With the web"
            f" server's alone the worker was busy until {max(web):.0f} s."
        )

    def answer(self, records):
        script = next(iter(SETS))
        get = lambda name: records.values(("nginx", script, name), "seconds")
        sleeps, loops = get(SLEEPS), get(LOOPS)
        if not (sleeps and loops):
            return "not measured"
        pool = list(SETS)[1]
        freed = [name for name in self.loads if records.values(("nginx", pool, name), "free")]
        ended = "all three" if len(freed) == len(self.loads) else f"only: {', '.join(freed)}"
        return (
            f"`max_execution_time` counts processor time: a loop was ended after {max(loops):.1f}"
            f" s, a sleep of {WORK_MS / 1000:g} s took {max(sleeps):.1f} s."
            f" `request_terminate_timeout` ended {ended}. The web server's time-out answers the"
            " client and leaves the worker where it is."
        )


def fate(server, path, seconds=WAIT_SECONDS):
    """The status of an answer, or what came instead."""
    try:
        with socket.create_connection(("127.0.0.1", server.port), seconds) as client:
            client.settimeout(seconds)
            client.sendall(
                f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
            )
            begin = client.recv(64).split()
            while client.recv(65536):
                continue
        return begin[1].decode() if len(begin) > 1 else "nothing"
    except TimeoutError:
        return "no answer"
    except ConnectionError:
        return "broken"


def free_again(server):
    """Waits for an answer of the only worker; false if it is not to be had in WAIT_SECONDS."""
    deadline = time.monotonic() + WAIT_SECONDS
    while (left := deadline - time.monotonic()) > 0:
        if fate(server, "/hello.php", left) == "200":
            return True
    return False


@contextlib.contextmanager
def hung_database():
    """The port of a server that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as listener:
        yield listener.getsockname()[1]
