"""What a backlog of 8192 does to p99."""

import contextlib
import subprocess

import asking
import experiment
import peers
import processes
import servers
from experiment import Arm
from records import shown
from servers import Setting

WORKERS, WAIT_MS = 22, 50
CAPACITY = WORKERS * 1000 // WAIT_MS
RATE = 900
PATIENCE = "10s"
USEFUL = "2s"
DEPTHS = (511, 4096, 8192)
CLONE_NEWNET = 0x40000000  # sched.h
SOMAXCONN = "/proc/sys/net/core/somaxconn"
OURS, SHORT, AUTO = "queue as by default (1000, 10 s)", "queue of 500 ms", "auto"


class Backlog(experiment.Experiment):
    """Open loop at twice the capacity."""

    id = "backlog"
    title = "A backlog of 511, 4096 or 8192"
    source = "five settings that decide p99"
    concluded = (
        "With 22 workers and 50 ms the default backlog of 511 fills «in about 1.2 s» of a burst,"
        " then connections are refused (errno 11); raise it, and `somaxconn`, to 4096 or 8192."
    )
    how = (
        f"The article's own figures: {WORKERS} workers, a page that waits for {WAIT_MS} ms"
        f" ({CAPACITY} a second at most), asked for {RATE} times a second. Clients leave after"
        f" {PATIENCE}; «useful» is an answer within {USEFUL}. The run has a network namespace of"
        " its own, in which `somaxconn` is 8192, so that the backlog is what it says. No warm-up"
        " is left out."
    )
    question = "What does a backlog of 8192 do to p99?"
    columns = (
        experiment.SERVED,
        experiment.Column("goodput", f"served within {USEFUL}, /s"),
        experiment.P50,
        experiment.P99,
        experiment.CPU,
        experiment.WORKERS,
        *experiment.FATES,
    )
    loads = (f"{RATE}/s",)
    shortest = 1.5

    def arms(self):
        pool = servers.static(WORKERS)
        found = [
            Arm("nginx", Setting(f"backlog {depth}", pool, backlog=depth), "article")
            for depth in DEPTHS
        ]
        ours = {**pool, "request_queue_timeout": "500ms"}
        return [
            *found,
            Arm("event", Setting(f"backlog {DEPTHS[0]}", pool, backlog=DEPTHS[0]), "article"),
            Arm("event", Setting(f"backlog {DEPTHS[-1]}", pool, backlog=DEPTHS[-1]), "article"),
            Arm("maitred", Setting(OURS, pool), "default"),
            Arm("maitred", Setting(SHORT, ours)),
            Arm("maitred", Setting(AUTO, servers.AUTO), "auto"),
        ]

    def measure(self, lab):
        with deep_namespace():
            yield from super().measure(lab)

    def measure_arm(self, lab, arm):
        page = f"/sleep.php?ms={WAIT_MS}&n=done"
        with lab.serving(arm) as server:
            experiment.checked(server, page, "done")
            found = asking.ask(
                server,
                asking.url(server, page),
                "--rate",
                RATE,
                "--duration",
                f"{self.seconds(lab)}s",
                "--warm-up",
                "0s",
                "--contains",
                "done",
                "--timeout",
                PATIENCE,
                "--slo",
                f"p99<{USEFUL}",
                keep=("series",),
            )
            processes.wait_until_idle(server.leaders, 1)
            series = [(each["number"], (each["p99"] or 0) * 1e3) for each in found.pop("series")]
            yield self.loads[0], {**found, "p99_by_second": series}

    def charts(self, records):
        lines = []
        for arm in self.arms():
            found = records.values((arm.server, arm.setting.name, self.loads[0]), "p99_by_second")
            if found:
                lines.append(
                    (
                        f"{servers.NAMES[arm.server]}, {arm.setting.name}"[:34],
                        [tuple(point) for point in found[0]],
                    )
                )
        return [
            (
                "backlog-p99",
                experiment.chart.lines(f"p99 by second at {RATE}/s", "s", "p99 ms", lines),
            ),
            self.bar_chart(
                records, "backlog-goodput", f"Served within {USEFUL}", "a second", "goodput"
            ),
        ]

    def findings(self, records):
        lines = []
        for key, name in [(arm.server, arm.setting.name) for arm in self.arms()]:
            get = lambda figure, key=key, name=name: records.median(key, name, figure)
            if get("rate") is not None:
                lines.append(
                    f"{servers.NAMES[key]}, {name}: {shown(get('rate'))}/s served,"
                    f" {shown(get('goodput'))}/s within {USEFUL}, p50 {shown(get('p50_ms'))} ms,"
                    f" p99 {shown(get('p99_ms'))} ms; {shown(get('failed'), '.0f')} failed,"
                    f" {shown(get('refused'), '.0f')} refused, {shown(get('timed_out'), '.0f')}"
                    " timed out."
                )
        return lines

    def verdict(self, records):
        few, many = (
            records.median("nginx", f"backlog {depth}", "goodput")
            for depth in (DEPTHS[0], DEPTHS[-1])
        )
        wait = DEPTHS[-1] / CAPACITY
        if not experiment.known(few, many):
            return ""
        return (
            f"Wrong: a backlog of {DEPTHS[-1]} is {wait:.1f} s of waiting at {CAPACITY} a second."
            f" Answers within {USEFUL} went from {shown(few)} to {shown(many)} a second, for"
            " workers were busy with pages whose visitors had left. 511 is"
            f" {DEPTHS[0] / CAPACITY:.1f} s, and what it refuses is refused at once; that php-fpm"
            " looks crashed then (502) is a matter of what is said, which a queue of limited time"
            " with 503 does better."
        )

    def answer(self, records):
        get = lambda key, name, figure: shown(records.median(key, name, figure))
        few, many = (f"backlog {depth}" for depth in (DEPTHS[0], DEPTHS[-1]))
        return (
            f"At twice the capacity p99 of php-fpm was {get('nginx', few, 'p99_ms')} ms with 511"
            f" and {get('nginx', many, 'p99_ms')} ms with 8192, and answers within {USEFUL} fell"
            f" from {get('nginx', few, 'goodput')} to {get('nginx', many, 'goodput')} a second;"
            f" maitred with a queue of 500 ms: {get('maitred', SHORT, 'p99_ms')} ms and"
            f" {get('maitred', SHORT, 'goodput')} a second."
        )


@contextlib.contextmanager
def deep_namespace():
    """Processes started within it have a network of their own, with room for the deepest backlog."""
    with open("/proc/self/ns/net", "rb") as before:
        try:
            if processes.LIBC.unshare(CLONE_NEWNET) != 0:
                raise OSError("no network namespace can be made; that takes root")
            subprocess.run([peers.program("ip"), "link", "set", "lo", "up"], check=True)
            with open(SOMAXCONN, "w", encoding="ascii") as file:
                file.write(str(DEPTHS[-1]))
            yield
        finally:
            processes.LIBC.setns(before.fileno(), CLONE_NEWNET)
