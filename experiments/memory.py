"""Memory of each mode, counted in three ways: after the start, after load, and after a rest."""

import time

import asking
import experiment
import lab as laboratory
import servers
from experiment import Arm
from records import shown
from servers import Setting

USERS = 8
REST_SECONDS = 12
STATES = ("after the start", "after load", f"{REST_SECONDS} s later")
STATIC, DYNAMIC, ONDEMAND = "static, 20", "dynamic, 50/10/5/20", "ondemand, 20"
FIVE, PER_CORE, AUTO, PREFORK = (
    "default (dynamic, 5)",
    "static, 2 per processor",
    "auto",
    "default (150 at most)",
)
BUDGET_MB = 1024


class Memory(experiment.Experiment):
    """Closed loop, then rest."""

    id = "memory"
    title = "Memory of each mode, and how to count it"
    source = (
        "PHP-FPM – process management; five settings that decide p99; Apache's multi-processing"
        " modules"
    )
    concluded = (
        "Divide memory by the average resident size that `ps` shows (60 MB, 140 MB, 24 MB); static"
        " takes most, ondemand least, dynamic is between."
    )
    how = (
        f"WordPress's front page, {USERS} users who ask again at once, then {REST_SECONDS} s of"
        " rest. Resident size counts OPcache and PHP's own code again for each worker; PSS shares"
        " them out; private memory is what one worker more costs. «All» is PSS of the whole"
        " server."
    )
    question = "RSS or private memory? What does each mode hold?"
    columns = (
        experiment.Column("count", "workers", ".0f"),
        experiment.Column("rss_mb", "RSS added up MB"),
        experiment.Column("pss_mb", "PSS MB"),
        experiment.Column("private_mb", "private MB"),
        experiment.Column("all_pss_mb", "all PSS MB"),
        experiment.Column("rss_each", "RSS a worker MB"),
        experiment.Column("private_each", "private a worker MB"),
    )
    loads = STATES
    shortest = 0.4

    def arms(self):
        ondemand = {"pm": "ondemand", "max_children": 20, "process_idle_timeout": "10s"}
        pools = (
            (STATIC, servers.static(20)),
            (DYNAMIC, servers.fpm(50, 10, 5, 20)),
            (ONDEMAND, ondemand),
        )
        found = [
            Arm(key, Setting(name, pool), "article")
            for key in ("nginx", "maitred")
            for name, pool in pools
        ]
        return [
            *found,
            Arm("nginx", Setting(FIVE, servers.FPM_DEFAULT), "default"),
            Arm("event", Setting(FIVE, servers.FPM_DEFAULT), "default"),
            Arm("prefork", Setting(PREFORK), "default"),
            Arm("maitred", Setting(PER_CORE)),
            Arm("maitred", Setting(AUTO, servers.AUTO), "auto"),
        ]

    def measure_arm(self, lab, arm):
        path, contains = laboratory.PAGES["wordpress"]
        root = lab.application("wordpress")
        with lab.serving(arm, root, front_controller=True) as server:
            yield STATES[0], each_of(asking.memory(server))
            experiment.checked(server, path, contains)
            found = experiment.closed(server, path, USERS, self.seconds(lab), contains)
            yield STATES[1], {
                **each_of(asking.memory(server)),
                "rate": found["rate"],
                "foreign": found["foreign"],
            }
            time.sleep(REST_SECONDS)
            yield STATES[2], each_of(asking.memory(server))

    def charts(self, records):
        return [
            self.bar_chart(
                records, "memory-rss", "Workers after load, RSS added up", "MB", "rss_mb", STATES[1]
            ),
            self.bar_chart(
                records,
                "memory-private",
                "Workers after load, private memory",
                "MB",
                "private_mb",
                STATES[1],
            ),
            self.bar_chart(
                records,
                "memory-rest",
                f"The whole server {REST_SECONDS} s after load, PSS",
                "MB",
                "all_pss_mb",
                STATES[2],
            ),
        ]

    def findings(self, records):
        lines = []
        for key, name in (("nginx", STATIC), ("maitred", STATIC), ("prefork", PREFORK)):
            rss, own = (
                records.median(key, name, figure, STATES[1])
                for figure in ("rss_each", "private_each")
            )
            if rss and own:
                lines.append(
                    f"{servers.NAMES[key]}, {name}, after load: a worker has {shown(rss)} MB by"
                    f" resident size and {shown(own)} MB of its own. {BUDGET_MB} MB for workers"
                    f" would be {BUDGET_MB / rss:.0f} of them by the first and"
                    f" {BUDGET_MB / own:.0f} by the second."
                )
        for state in STATES:
            parts = [
                f"{servers.NAMES[key]} {name} {shown(value)} MB"
                for key, name in [(a.server, a.setting.name) for a in self.arms()]
                if (value := records.median(key, name, "all_pss_mb", state)) is not None
            ]
            lines.append(f"The whole server {state}: {', '.join(parts)}.")
        return lines

    def verdict(self, records):
        rss, own = (
            records.median("nginx", STATIC, figure, STATES[1])
            for figure in ("rss_each", "private_each")
        )
        if not experiment.known(rss, own) or not own:
            return ""
        return (
            f"Wrong by {rss / own:.1f} times here: a worker of php-fpm that `ps` shows with"
            f" {shown(rss)} MB costs {shown(own)} MB. The order of the modes is as the articles"
            " have it, and what they differ by is that private memory of idle workers."
        )

    def answer(self, records):
        found = self.findings(records)
        return found[0]


def each_of(found):
    """The sums, and what comes to each worker."""
    count = found["count"] or None
    return {
        **found,
        "rss_each": count and found["rss_mb"] / count,
        "private_each": count and found["private_mb"] / count,
    }
