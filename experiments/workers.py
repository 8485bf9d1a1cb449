"""How many workers: every number, for pages that compute and for pages that wait."""

import experiment
import servers
from experiment import Arm
from records import shown
from servers import Setting

COUNTS = (1, 2, 4, 8, 16, 32, 64)
USERS = 64
COMPUTES, BOTH, WAITS = "computes (8 ms)", "8 ms, and waits 24 ms", "2 ms, and waits 60 ms"
PAGES = {
    COMPUTES: "/app.php?cpu=8",
    BOTH: "/app.php?cpu=8&wait=24",
    WAITS: "/app.php?cpu=2&wait=60",
}
PROCESSORS = 2
KNEES = {COMPUTES: PROCESSORS, BOTH: PROCESSORS * 4, WAITS: PROCESSORS * 31}
AUTO = "auto"


class Workers(experiment.Experiment):
    """Closed loop over static pools."""

    id = "workers"
    title = "How many workers"
    source = "all five"
    concluded = (
        "Memory divided by the size of a worker (58, 125, 22, 8); for requests that compute, two to"
        " four for each processor."
    )
    how = (
        f"Static pools from 1 to {COUNTS[-1]} workers, {USERS} users who ask again at once, three"
        " pages. Where a request takes C of processor time and waits for B, K processors are full"
        " with K · (C + B) / C workers: "
        + ", ".join(f"{count} for «{name}»" for name, count in KNEES.items())
        + f" on {PROCESSORS}. Generator and servers share them, so some less is left."
    )
    question = "How many workers?"
    columns = (
        experiment.SERVED,
        experiment.P50,
        experiment.P95,
        experiment.CPU,
        experiment.WORKERS,
        *experiment.FATES,
    )
    loads = tuple(PAGES)
    shortest = 0.25

    def arms(self):
        found = [
            Arm(key, Setting(f"static, {count}", servers.static(count)))
            for count in COUNTS
            for key in ("nginx", "maitred")
        ]
        return [*found, Arm("maitred", Setting(AUTO, servers.AUTO), "auto")]

    def measure_arm(self, lab, arm):
        for name, page in PAGES.items():
            with lab.serving(arm) as server:
                experiment.checked(server, page, "done")
                # It looks once a second how many it needs.
                warm_up = 10 if arm.marker == "auto" else 1
                yield name, experiment.closed(
                    server,
                    page,
                    USERS,
                    self.seconds(lab),
                    "done",
                    warm_up=warm_up,
                    patience="60s",
                )

    def charts(self, records):
        found = []
        for short, name in zip(("computes", "both", "waits"), PAGES):
            for figure, what in (("rate", "served a second"), ("p50_ms", "p50 ms")):
                series = []
                for key in ("maitred", "nginx"):
                    points = [
                        (count, records.median(key, f"static, {count}", figure, name))
                        for count in COUNTS
                    ]
                    series.append(
                        (servers.NAMES[key], [point for point in points if point[1] is not None])
                    )
                size, value = (
                    records.median("maitred", AUTO, each, name) for each in ("workers", figure)
                )
                if size and value is not None:
                    series.append((f"maitred, auto: {size:.0f} workers", [(max(size, 1), value)]))
                found.append(
                    (
                        f"workers-{short}-{figure.partition('_')[0]}",
                        experiment.chart.lines(
                            f"{name}: {what}", "workers", what, series, logarithmic=True
                        ),
                    )
                )
        return found

    def enough(self, records, key, name):
        """The fewest workers with 95 % of the most that any number has served, and both rates."""
        rates = {count: records.median(key, f"static, {count}", "rate", name) for count in COUNTS}
        rates = {count: rate for count, rate in rates.items() if rate}
        if not rates:
            return None, None, None
        most = max(rates.values())
        fewest = min(count for count, rate in rates.items() if rate >= 0.95 * most)
        return fewest, rates[fewest], most

    def findings(self, records):
        lines = []
        for name in PAGES:
            parts = []
            for key in ("nginx", "maitred"):
                fewest, rate, most = self.enough(records, key, name)
                if fewest:
                    cost = records.median(key, f"static, {COUNTS[-1]}", "cpu_ms", name)
                    own = records.median(key, f"static, {fewest}", "cpu_ms", name)
                    parts.append(
                        f"{servers.NAMES[key]} needs {fewest} workers for {shown(rate)} of"
                        f" {shown(most)}/s (CPU {shown(own)} ms a request; with {COUNTS[-1]}"
                        f" workers {shown(cost)} ms)"
                    )
            get = lambda figure, name=name: records.median("maitred", AUTO, figure, name)
            if get("rate"):
                parts.append(
                    f"`auto` had at most {shown(get('workers'))} and served {shown(get('rate'))}/s"
                )
            lines.append(f"{name}, full with {KNEES[name]} by the formula: {'; '.join(parts)}.")
        return lines

    def verdict(self, records):
        fewest = {name: self.enough(records, "nginx", name)[0] for name in PAGES}
        if None in fewest.values():
            return ""
        return (
            f"Memory says how many may be, not how many should be: {min(fewest.values())} to"
            f" {max(fewest.values())} workers were enough here, by what the page waits for. «Two to"
            " four for each processor» is right for pages that wait for half to three quarters of"
            " their time."
        )

    def answer(self, records):
        parts = []
        for name in PAGES:
            fewest = self.enough(records, "nginx", name)[0]
            if fewest:
                parts.append(f"{fewest} for «{name}» (formula {KNEES[name]})")
        return (
            "As many as keep the processors busy, K · (C + B) / C, if memory takes them. 95 % of"
            f" the most behind nginx + php-fpm with: {', '.join(parts)}."
        )
