"""B9: scripts that leak, and the number of requests after which a worker is replaced."""

import time

import asking
import experiment
import servers
from experiment import Arm
from records import shown
from servers import Setting

RATE = 100
LEAKS_KB = (3, 300)
WORKERS = 4
INI = {"ffi.enable": "1"}
NEVER, FIVE_HUNDRED, HUNDRED = "never replaced", "after 500 requests", "after 100 requests"
BY_MEMORY, AUTO, PREFORK = (
    "at 48 MB of its own",
    "auto, never replaced",
    "never replaced (150 at most)",
)
PREFORK_HUNDRED = "after 100 connections (150 at most)"
LOOKS = 8


class Leak(experiment.Experiment):
    """Open loop; memory over time."""

    id = "B9"
    title = "A leak, and replacing workers"
    source = "five settings that decide p99"
    concluded = (
        "A worker of 80 MB may be at 220 MB after 50 000 requests; replace it after 500 to 1000"
        " requests, sooner for code that makes PDFs or pictures, after 2000 for lean APIs; «even"
        " 2000 is safer than 0»."
    )
    how = (
        f"A page whose native memory is never given back, {LEAKS_KB[0]} KB or {LEAKS_KB[1]} KB a"
        f" request, {RATE} requests a second, {WORKERS} workers; for a short time instead of an"
        " hour, so a few hundred requests for each worker. Memory is what workers have for"
        f" themselves, all together. With {LEAKS_KB[1]} KB a limit of 500 requests is 150 MB for"
        " each worker."
    )
    question = "After how many requests should a worker be replaced?"
    columns = (
        experiment.Column("start_mb", "private MB at start", ".3g"),
        experiment.Column("most_mb", "most private MB", ".3g"),
        experiment.Column("kb_per_request", "growth KB a request", ".3g"),
        experiment.P50,
        experiment.P95,
        experiment.Column("max_ms", "slowest ms"),
        experiment.CPU,
        experiment.Column("replaced", "workers replaced", ".0f"),
        *experiment.FATES,
    )
    loads = tuple(f"{kb} KB a request" for kb in LEAKS_KB)

    def arms(self):
        found = []
        for key in ("nginx", "maitred"):
            for name, most in ((NEVER, 0), (FIVE_HUNDRED, 500), (HUNDRED, 100)):
                found.append(
                    Arm(key, Setting(name, servers.static(WORKERS, max_requests=most), ini=INI))
                )
        by_memory = servers.static(WORKERS, max_private_memory="48M")
        prefork = dict(servers.PREFORK_DEFAULT, MaxConnectionsPerChild=100)
        return [
            *found,
            Arm("maitred", Setting(BY_MEMORY, by_memory, ini=INI)),
            Arm("maitred", Setting(AUTO, servers.AUTO, ini=INI), "auto"),
            Arm("prefork", Setting(PREFORK, ini=INI), "default"),
            Arm("prefork", Setting(PREFORK_HUNDRED, apache=prefork, ini=INI)),
        ]

    def measure_arm(self, lab, arm):
        for kb, name in zip(LEAKS_KB, self.loads):
            page = f"/leak.php?kb={kb}"
            with lab.serving(arm) as server:
                experiment.checked(server, page, "done")
                seen, pids = [asking.memory(server)["private_mb"]], set(server.workers())
                every = self.seconds(lab) / LOOKS

                def look(server=server, seen=seen, pids=pids, every=every):
                    time.sleep(every)
                    seen.append(asking.memory(server)["private_mb"])
                    pids.update(server.workers())

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
                    experiment.PATIENCE,
                    meanwhile=look,
                )
                seen.append(asking.memory(server)["private_mb"])
                pids.update(server.workers())
            yield name, {
                **found,
                "start_mb": seen[0],
                "most_mb": max(seen),
                "seen_mb": seen,
                "replaced": max(0, len(pids) - found["workers"]),
                "kb_per_request": (seen[-1] - seen[0]) * 1024 / max(1, found["served"]),
            }

    def charts(self, records):
        most = f"{LEAKS_KB[1]} KB a request"
        return [
            self.bar_chart(
                records, "b9-memory", f"Workers' own memory at most, {most}", "MB", "most_mb", most
            )
        ]

    def findings(self, records):
        lines = []
        for name in self.loads:
            parts = []
            for key, setting in [(arm.server, arm.setting.name) for arm in self.arms()]:
                get = lambda figure, key=key, setting=setting, name=name: records.median(
                    key, setting, figure, name
                )
                if get("most_mb") is not None:
                    parts.append(
                        f"{servers.NAMES[key]} {setting}: {shown(get('most_mb'))} MB, p95"
                        f" {shown(get('p95_ms'))} ms"
                    )
            lines.append(f"{name}, workers' own memory at most: {'; '.join(parts)}.")
        return lines

    def verdict(self, records):
        get = lambda key, name, figure: records.median(key, name, figure, self.loads[1])
        never, hundred = get("nginx", NEVER, "cpu_ms"), get("nginx", HUNDRED, "cpu_ms")
        if not experiment.known(never, hundred):
            return ""
        return (
            "500 or 1000 requests is no rule: the number is what a worker may grow by, divided by"
            f" what a request leaves. Replacing it after 100 requests costs {shown(hundred)} ms of"
            f" processor time a request in place of {shown(never)} ms (most of either is the leaked"
            " memory's own). A limit of memory needs no number of requests."
        )

    def answer(self, records):
        get = lambda key, name, figure: shown(records.median(key, name, figure, self.loads[1]))
        return (
            f"It depends on the leak, not on a number: at {LEAKS_KB[1]} KB a request 500 requests"
            f" left php-fpm's {WORKERS} workers at {get('nginx', FIVE_HUNDRED, 'most_mb')} MB and"
            f" 100 at {get('nginx', HUNDRED, 'most_mb')} MB; maitred's limit by memory held"
            f" {get('maitred', BY_MEMORY, 'most_mb')} MB, with a p95 of"
            f" {get('maitred', BY_MEMORY, 'p95_ms')} ms."
        )
