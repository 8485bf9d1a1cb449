"""B7: twenty times as many requests from one second to the next, from cold."""

import asking
import experiment
import servers
from experiment import Arm
from records import shown
from servers import Setting

CALM, CROWD, CALM_SECONDS = 10, 200, 3
PAGE = "/step.php"
ONDEMAND, FIVE, GUIDE, FIFTY = (
    "ondemand, 50",
    "default (dynamic, 5)",
    "article's dynamic, 50/10/5/20",
    "static, 50",
)
PER_CORE, AUTO, PREFORK = "static, 2 per processor", "auto", "default (150 at most)"
STEP, ZERO = f"{CALM}/s, then {CROWD}/s", f"{CROWD}/s at once, from cold"


class Crowd(experiment.Experiment):
    """Open loop; the first seconds count."""

    id = "B7"
    title = "A crowd: 20 times as many from one second to the next"
    source = "five settings that decide p99; nginx's FastCGI cache and pm static"
    concluded = (
        "A spawn in a burst is the worst outlier; ondemand has failures when a crowd begins;"
        " dynamic has «spawn latency at the edges»; so static for anything with users, and ondemand"
        " costs 5 to 50 ms, or 50 to 200 ms, on a cold request."
    )
    how = (
        f"A page of 4 ms of processor time and 40 ms of waiting: {CROWD} a second keep 9 workers"
        f" busy. Once after {CALM_SECONDS} s of {CALM} a second, and once at once on an idle"
        " server (ondemand and `auto` have scaled to nothing, or to one). No"
        " warm-up is left out. The first answers are of another fresh server, one after the other."
    )
    question = "Static, dynamic or ondemand when a crowd comes?"
    columns = (
        experiment.Column("served_share", "share served", ".3f"),
        experiment.P50,
        experiment.P99,
        experiment.Column("max_ms", "slowest ms"),
        experiment.Column("second_ms", "p99 of the crowd's 1st second, ms"),
        experiment.CPU,
        experiment.WORKERS,
        experiment.Column("first_ms", "first answer ms"),
        experiment.Column("warm_ms", "third answer ms"),
        *experiment.FATES,
    )
    loads = (STEP, ZERO)
    shortest = 0.4

    def arms(self):
        guide = servers.fpm(50, 10, 5, 20)
        ondemand = {"pm": "ondemand", "max_children": 50, "process_idle_timeout": "10s"}
        found = [
            Arm(key, Setting(name, pool), "article")
            for key in ("nginx", "maitred")
            for name, pool in ((ONDEMAND, ondemand), (GUIDE, guide), (FIFTY, servers.static(50)))
        ]
        return [
            *found,
            Arm("nginx", Setting(FIVE, servers.FPM_DEFAULT), "default"),
            Arm("event", Setting(GUIDE, guide), "article"),
            Arm("prefork", Setting(PREFORK), "default"),
            Arm("maitred", Setting(PER_CORE)),
            Arm("maitred", Setting(AUTO, servers.AUTO), "auto"),
        ]

    def measure_arm(self, lab, arm):
        seconds = self.seconds(lab)
        with lab.serving(arm) as server:
            yield ZERO, self.ask(server, str(CROWD), seconds, 0)
        with lab.serving(arm) as server:
            first = asking.first_answers(server, PAGE)
            steps = f"{CALM}@{CALM_SECONDS}s,{CROWD}@{seconds}s"
            found = self.ask(server, steps, CALM_SECONDS + seconds, CALM_SECONDS)
            yield STEP, {**found, "first_ms": first[0], "warm_ms": first[-1]}

    def ask(self, server, rate, seconds, crowd_comes):
        """One run, and what became of the second in which the crowd has come."""
        found = asking.ask(
            server,
            asking.url(server, PAGE),
            "--rate",
            rate,
            "--duration",
            f"{seconds}s",
            "--warm-up",
            "0s",
            "--contains",
            "done",
            "--timeout",
            experiment.PATIENCE,
            keep=("series",),
        )
        series = found.pop("series")
        of_second = series[crowd_comes]["p99"] if len(series) > crowd_comes else None
        return {**found, "second_ms": None if of_second is None else of_second * 1e3}

    def charts(self, records):
        return [
            self.bar_chart(
                records, "b7-zero", "p99 of the first second, from cold", "ms", "second_ms", ZERO
            ),
            self.bar_chart(
                records, "b7-step", "p99 of the crowd's first second", "ms", "second_ms", STEP
            ),
        ]

    def findings(self, records):
        lines = []
        for key, name in [(arm.server, arm.setting.name) for arm in self.arms()]:
            get = lambda figure, load, key=key, name=name: records.median(key, name, figure, load)
            if get("second_ms", STEP) is not None:
                lines.append(
                    f"{servers.NAMES[key]}, {name}: p99 of the crowd's first second"
                    f" {shown(get('second_ms', STEP))} ms after a calm,"
                    f" {shown(get('second_ms', ZERO))} ms from cold; first answer"
                    f" {shown(get('first_ms', STEP))} ms, third {shown(get('warm_ms', STEP))}"
                    " ms."
                )
        return lines

    def verdict(self, records):
        get = lambda key, name: records.median(key, name, "second_ms", ZERO)
        static, ondemand, five = get("nginx", FIFTY), get("nginx", ONDEMAND), get("nginx", FIVE)
        ours = get("maitred", ONDEMAND)
        failed = records.median("nginx", ONDEMAND, "failed", ZERO)
        if not experiment.known(static, ondemand, five, ours, failed):
            return ""
        return (
            "Ondemand is blamed for too much: from cold its first second had a p99 of"
            f" {shown(ondemand)} ms where static had {shown(static)} ms, and {shown(failed, '.0f')}"
            f" failures. What hurts is too few workers: the default 5 had {shown(five)} ms."
            f" maitred's ondemand pool had {shown(ours)} ms: it listens before its PHP has started,"
            " which php-fpm starts first, and this crowd comes at once."
        )

    def answer(self, records):
        get = lambda key, name: shown(records.median(key, name, "second_ms", ZERO))
        return (
            f"p99 of the first second from cold: php-fpm static {get('nginx', FIFTY)} ms, dynamic"
            f" {get('nginx', GUIDE)} ms, ondemand {get('nginx', ONDEMAND)} ms; maitred"
            f" {get('maitred', FIFTY)}, {get('maitred', GUIDE)}, {get('maitred', ONDEMAND)}"
            f" ms (it listens before its PHP has started), and `auto` {get('maitred', AUTO)} ms."
        )
