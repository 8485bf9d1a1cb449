"""B2: two hundred requests a second at an API, as in the second article."""

import experiment
import group
import servers
from experiment import Arm
from records import shown
from servers import Setting

RATE = 200
GROUP_MB = 1024
PAGE = "/app.php?cpu=8&wait=60&hold=40"
INI = {"ffi.enable": "1"}
BEFORE, AFTER = "before (dynamic, 50)", "after (static, 20)"
DEFAULT, PER_CORE, AUTO = "default (dynamic, 5)", "static, 2 per processor", "auto"


class Api(experiment.Experiment):
    """Open loop; more workers than the memory takes."""

    id = "B2"
    title = "200 requests a second where 50 workers do not fit into memory"
    source = "five settings that decide p99"
    concluded = (
        "On 2 processors and 4 GB, 200 requests a second: dynamic with 50 workers had a p99 of 4800"
        " ms, 92 % of the memory in use and two kills for lack of memory; static with 20 (memory by"
        " average resident size), workers replaced after 800 requests and a backlog of 8192 had 380"
        " ms, 78 % and none."
    )
    how = (
        "A page of 8 ms of processor time and 60 ms of waiting for a database elsewhere, in"
        " workers that keep 40 MB from their first request on (the article's 30–80 ms of processor"
        f" time cannot be had 200 times a second on two processors). A control group of {GROUP_MB}"
        " MB without swap, a quarter of the article's machine, holds server and workers: 20 fit,"
        " 50 do not. Two processors, which the generator and the rest of the machine share."
        " Answers later than 10 s count as timed out."
    )
    question = "50 workers, or as many as fit into memory?"
    columns = (
        experiment.SERVED,
        experiment.Column("served_share", "share served", ".3f"),
        experiment.P50,
        experiment.P95,
        experiment.P99,
        experiment.CPU,
        experiment.WORKERS,
        experiment.Column("peak_mb", "group's peak MB", ".0f"),
        experiment.Column("kills", "killed for memory", ".0f"),
        *experiment.FATES,
    )
    loads = (f"{RATE}/s",)
    shortest = 1.5

    def arms(self):
        before = servers.fpm(50, 10, 5, 20)
        after = servers.static(20, max_requests=800)
        found = []
        for key in ("nginx", "event", "maitred"):
            found.append(Arm(key, Setting(BEFORE, before, ini=INI), "article"))
            backlog = 8192 if key != "maitred" else servers.FPM_BACKLOG
            found.append(
                Arm(key, Setting(AFTER, after, ini=INI, backlog=backlog, terminate=35), "article")
            )
            if key == "nginx":
                found.append(Arm(key, Setting(DEFAULT, servers.FPM_DEFAULT, ini=INI), "default"))
        return [
            *found,
            Arm("prefork", Setting("default (150 at most)", ini=INI), "default"),
            Arm(
                "prefork",
                Setting("20 at most", apache=servers.prefork(20, 1, 20, 20), ini=INI),
                "article",
            ),
            Arm("maitred", Setting(PER_CORE, ini=INI)),
            Arm("maitred", Setting(AUTO, servers.AUTO, ini=INI), "auto"),
        ]

    def measure_arm(self, lab, arm):
        with group.Group(GROUP_MB) as within, lab.serving(arm, within=within) as server:
            experiment.checked(server, PAGE, "done")
            found = experiment.opened(
                server,
                PAGE,
                RATE,
                self.seconds(lab),
                "done",
                "--timeout",
                "10s",
                warm_up=2,
            )
            yield self.loads[0], {**found, "kills": within.kills(), "peak_mb": within.peak_mb()}

    def charts(self, records):
        return [
            self.bar_chart(records, "b2-p99", "p99 at 200 requests a second", "ms", "p99_ms"),
            self.bar_chart(
                records, "b2-share", "Share of requests that were served", "", "served_share"
            ),
        ]

    def findings(self, records):
        lines = []
        for key in ("nginx", "event", "maitred"):
            words = []
            for name in (BEFORE, AFTER):
                get = lambda figure, key=key, name=name: records.median(key, name, figure)
                words.append(
                    f"«{name}» served {share(get('served_share'))} with a p99 of"
                    f" {shown(get('p99_ms'))} ms, {shown(get('kills'), '.0f')} workers killed for"
                    " lack of memory"
                )
            lines.append(f"{servers.NAMES[key]}: {'; '.join(words)}.")
        get = lambda name, figure: records.median("maitred", name, figure)
        lines.append(
            f"maitred with `auto` served {share(get(AUTO, 'served_share'))} with a p99 of"
            f" {shown(get(AUTO, 'p99_ms'))} ms and at most {shown(get(AUTO, 'workers'))} workers,"
            f" {shown(get(AUTO, 'kills'), '.0f')} killed; 2 workers per processor"
            f" served {share(get(PER_CORE, 'served_share'))}: 4 workers that wait for 60 of 68 ms"
            " cannot do 200 a second."
        )
        return lines

    def verdict(self, records):
        get = lambda key, name, figure: records.median(key, name, figure)
        before, after = get("nginx", BEFORE, "kills"), get("nginx", AFTER, "kills")
        late, soon = get("nginx", BEFORE, "p95_ms"), get("nginx", AFTER, "p95_ms")
        auto, ours = get("maitred", AUTO, "p95_ms"), get("maitred", AFTER, "p95_ms")
        if not experiment.known(before, after, late, soon, auto, ours):
            return ""
        word = "right" if before > after == 0 and late > soon else "not borne out here"
        words = (
            f"The article was {word}: with 50 workers {shown(before, '.0f')} were killed and p95"
            f" was {shown(late)} ms, with 20 {shown(after, '.0f')} and {shown(soon)} ms. But its 20"
            " came from resident sizes; what has to fit is what a worker has for itself."
        )
        if auto > 2 * ours:
            words += (
                f" `auto` did badly: p95 {shown(auto)} ms where 20 fixed workers have {shown(ours)}"
                f" ms: it had at most {shown(get('maitred', AUTO, 'workers'))} workers, which took"
                f" the group to {shown(get('maitred', AUTO, 'peak_mb'), '.0f')} of {GROUP_MB} MB,"
                " and did not work off what had piled up while it grew."
            )
        return words

    def answer(self, records):
        get = lambda key, name, figure: shown(records.median(key, name, figure))
        return (
            f"As many as fit: behind nginx 50 had {get('nginx', BEFORE, 'kills')} killed for lack"
            f" of memory and a p95 of {get('nginx', BEFORE, 'p95_ms')} ms, 20 none and"
            f" {get('nginx', AFTER, 'p95_ms')} ms; maitred with 20"
            f" {get('maitred', AFTER, 'p95_ms')} ms, with `auto`"
            f" {get('maitred', AUTO, 'p95_ms')} ms."
        )


def share(value):
    """A part of all, in words."""
    return "nothing that is known" if value is None else f"{100 * value:.3g} %"
