"""OPcache on and off: what the articles leave out, or say in passing."""

import experiment
import lab
import servers
from experiment import Arm
from records import shown
from servers import Setting

USERS = 4
ON, OFF = "OPcache on", "OPcache off"
WORKERS = 4


class OpCache(experiment.Experiment):
    """Three applications with and without OPcache."""

    id = "opcache"
    title = "OPcache on and off"
    source = "Apache vs nginx + php-fpm, comments; PHP-FPM – process management measures without it"
    concluded = (
        "«Opcode caches differ little from each other, but having one is a large gain»; no figures."
    )
    how = (
        "WordPress with MariaDB, MediaWiki with SQLite and the Illuminate application of this"
        f" project's tests, 4 users who ask again at once, {WORKERS} workers everywhere."
    )
    question = "What does OPcache change?"
    columns = (experiment.CPU, experiment.SERVED, experiment.P50, experiment.P95, *experiment.FATES)
    loads = tuple(lab.PAGES)
    shortest = 0.35

    def arms(self):
        found = []
        for key in servers.KINDS:
            for name, ini in ((ON, {}), (OFF, {"opcache.enable": "0"})):
                pool = {} if key == "prefork" else servers.static(WORKERS)
                apache = servers.prefork(WORKERS, 1, WORKERS, WORKERS) if key == "prefork" else {}
                found.append(Arm(key, Setting(name, pool, apache, ini)))
        return found

    def measure_arm(self, lab_, arm):
        for name, (path, contains) in lab.PAGES.items():
            root = lab_.application(name)
            setting = experiment.dataclasses.replace(arm.setting, env=lab_.env.get(name, {}))
            of_application = experiment.dataclasses.replace(arm, setting=setting)
            with lab_.serving(of_application, root, front_controller=True) as server:
                experiment.checked(server, path, contains)
                yield name, experiment.closed(server, path, USERS, self.seconds(lab_), contains)

    def charts(self, records):
        return [
            self.bar_chart(
                records, f"opcache-{name}", f"{name}: CPU per request", "ms", "cpu_ms", name
            )
            for name in self.loads
        ]

    def findings(self, records):
        found = []
        for name in self.loads:
            parts = []
            for key in servers.KINDS:
                on, off = (records.median(key, which, "cpu_ms", name) for which in (ON, OFF))
                if on and off:
                    parts.append(
                        f"{servers.NAMES[key]} {shown(off)} → {shown(on)} ms "
                        f"({off / on:.1f} times less)"
                    )
            found.append(f"{name}, CPU per request without → with OPcache: {'; '.join(parts)}.")
        return found

    def verdict(self, records):
        on, off = (records.median("nginx", which, "cpu_ms", "wordpress") for which in (ON, OFF))
        if not experiment.known(on, off):
            return ""
        return (
            f"Right, and more than any number of workers does: WordPress takes {off / on:.1f} times"
            " the processor time without. A measurement of workers without it, as in the first"
            " article, measures the compiler."
        )

    def answer(self, records):
        parts = []
        for name in self.loads:
            on, off = (records.median("nginx", which, "cpu_ms", name) for which in (ON, OFF))
            if on and off:
                parts.append(f"{name} {off / on:.1f} times")
        return (
            "More than any number of workers does: CPU per request behind nginx + php-fpm falls"
            f" by {', '.join(parts)}."
        )
