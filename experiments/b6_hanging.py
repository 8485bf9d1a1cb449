"""B6: two of a hundred requests hang for fifteen seconds."""

import os

import experiment
import servers
from experiment import Arm
from records import shown
from servers import Setting

RATE, SHARE, HANG_MS, PATIENCE = 100, 2, 15000, "20s"
PAGE, HUNG = "/busy.php?ms=5", f"/sleep.php?ms={HANG_MS}&n=done"
LIMIT = 2
FIVE, TWENTY_TWO, LIMITED = "default (dynamic, 5)", "static, 22", f"static, 22, at most {LIMIT} s"
PER_CORE, AUTO, AUTO_LIMITED = "static, 2 per processor", "auto", f"auto, at most {LIMIT} s"
PREFORK = "default (150 at most)"


class Hanging(experiment.Experiment):
    """Open loop: how the others fare."""

    id = "B6"
    title = "Two of a hundred requests hang for 15 s"
    source = (
        "five settings that decide p99; the load is that of FrankenPHP's own test, as an open loop"
    )
    concluded = (
        "A hung upstream times the size of the pool wedges everything; only a signal of the master "
        "(`request_terminate_timeout`) frees a worker reliably."
    )
    how = (
        f"{RATE} requests a second, {100 - SHARE} % for a page of 5 ms of processor time, {SHARE} %"
        f" for one that sleeps for {HANG_MS // 1000} s: on average"
        f" {RATE * SHARE * HANG_MS // 100000} workers hang. Figures are those of the others."
        f" Clients wait for {PATIENCE}. With «at most {LIMIT} s», `request_terminate_timeout` is"
        f" {LIMIT} s."
    )
    question = "What do a few requests that hang do to the others?"
    columns = (
        experiment.Column("others_share", "others served", ".3f"),
        experiment.Column("others_p50", "their p50 ms"),
        experiment.Column("others_p95", "their p95 ms"),
        experiment.Column("others_p99", "their p99 ms"),
        experiment.WORKERS,
        *experiment.FATES,
    )
    loads = (f"{RATE}/s, {SHARE} % hang",)
    shortest = 2.5

    def arms(self):
        return [
            Arm("nginx", Setting(FIVE, servers.FPM_DEFAULT), "default"),
            Arm("nginx", Setting(TWENTY_TWO, servers.static(22)), "article"),
            Arm("nginx", Setting(LIMITED, servers.static(22), terminate=LIMIT), "article"),
            Arm("event", Setting(LIMITED, servers.static(22), terminate=LIMIT), "article"),
            Arm("prefork", Setting(PREFORK), "default"),
            Arm("maitred", Setting(PER_CORE)),
            Arm("maitred", Setting(TWENTY_TWO, servers.static(22)), "article"),
            Arm("maitred", Setting(LIMITED, servers.static(22), terminate=LIMIT), "article"),
            Arm("maitred", Setting(AUTO, servers.AUTO), "auto"),
            Arm("maitred", Setting(AUTO_LIMITED, servers.AUTO, terminate=LIMIT), "auto"),
        ]

    def measure_arm(self, lab, arm):
        with lab.serving(arm) as server:
            experiment.checked(server, PAGE, "done")
            path = os.path.join(lab.directory, "urls.txt")
            with open(path, "w", encoding="ascii") as file:
                for weight, page in ((100 - SHARE, PAGE), (SHARE, HUNG)):
                    file.write(f"{weight} {experiment.asking.url(server, page)}\n")
            found = experiment.asking.ask(
                server,
                "--urls-file",
                path,
                "--rate",
                RATE,
                "--duration",
                f"{self.seconds(lab)}s",
                "--warm-up",
                "0s",
                "--timeout",
                PATIENCE,
                keep=("urls",),
            )
            others = next(each for each in found.pop("urls") if PAGE in each["url"])
            times, all_of_them = others["corrected"], others["served"] + others["not_served"]
            yield self.loads[0], {
                **found,
                "others_share": others["served"] / all_of_them,
                "others_p50": milliseconds(times["p50"]),
                "others_p95": milliseconds(times["p95"]),
                "others_p99": milliseconds(times["p99"]),
            }

    def charts(self, records):
        return [
            self.bar_chart(
                records, "b6-share", "Share of the others that were served", "", "others_share"
            ),
            self.bar_chart(records, "b6-p95", "p95 of the others", "ms", "others_p95"),
        ]

    def findings(self, records):
        lines = []
        for key, name in [(arm.server, arm.setting.name) for arm in self.arms()]:
            get = lambda figure, key=key, name=name: records.median(key, name, figure)
            if get("others_share") is not None:
                lines.append(
                    f"{servers.NAMES[key]}, {name}: {100 * get('others_share'):.1f} % of the others"
                    f" served, p95 {shown(get('others_p95'))} ms, at most {shown(get('workers'))}"
                    " workers."
                )
        return lines

    def verdict(self, records):
        get = lambda key, name: records.median(key, name, "others_share")
        free, limited = get("nginx", TWENTY_TWO), get("nginx", LIMITED)
        late, soon = (records.median("nginx", name, "others_p95") for name in (TWENTY_TWO, LIMITED))
        if not experiment.known(free, limited, late, soon):
            return ""
        word = (
            "was right"
            if late > 1.5 * soon or free < limited - 0.01
            else "is not borne out by so short a run"
        )
        auto = records.median("maitred", AUTO, "others_p95")
        badly = (
            f" `auto` did badly: {shown(auto)} ms, and"
            f" {100 * records.median('maitred', AUTO, 'others_share'):.1f} % of the others served,"
            f" with at most {shown(records.median('maitred', AUTO, 'workers'))} workers."
        )
        return (
            f"The article {word}: without a limit 22 workers had a p95 of {shown(late)} ms for the"
            f" others, with one of {LIMIT} s {shown(soon)} ms. A pool that is larger than what"
            " hangs at a time needs no limit for the others' sake, and holds that much more"
            f" memory.{badly if auto is not None and auto > 5 * soon else ''}"
        )

    def answer(self, records):
        get = lambda key, name, figure: shown(records.median(key, name, figure))
        return (
            f"p95 of the others: php-fpm with 22 workers {get('nginx', TWENTY_TWO, 'others_p95')}"
            f" ms, with a limit of {LIMIT} s {get('nginx', LIMITED, 'others_p95')} ms; maitred with"
            f" `auto` {get('maitred', AUTO, 'others_p95')} ms, with 22 and that limit"
            f" {get('maitred', LIMITED, 'others_p95')} ms."
        )


def milliseconds(seconds):
    """None stays None."""
    return None if seconds is None else seconds * 1e3
