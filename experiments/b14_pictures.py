"""B14: thumbnails, of which a few are of pictures that take 400 MB."""

import os

import experiment
import group
import servers
from experiment import Arm
from records import shown
from servers import Setting

GROUP_MB = 1024
RATE, SHARE = 20, 6
PAGE, LARGE = "/thumbnail.php", "/thumbnail.php?large=1"
INI = {"memory_limit": "600M"}
TWENTY, FIFTY, TWO = "static, 20", "dynamic, 50/10/5/20", "static, 2"
PER_CORE, AUTO, PREFORK = "static, 2 per processor", "auto", "default (150 at most)"


class Pictures(experiment.Experiment):
    """Open loop in a group of memory that two large pictures fill."""

    id = "B14"
    title = "Thumbnails, a few of them of pictures that take 400 MB"
    source = "five settings that decide p99"
    concluded = (
        "Work with pictures takes more than 400 MB for a moment; size for the average of settled"
        " workers, and recycle sooner."
    )
    how = (
        f"Thumbnails made with php-gd, {RATE} requests a second, of which {SHARE} % are of a"
        " picture of 100 megapixels that takes 400 MB for a second; `memory_limit` is 600 MB, and"
        f" a control group of {GROUP_MB} MB without swap holds the server: two such pictures fit,"
        f" three do not. (2 % in the plan; {SHARE} % make it happen within a short run.)"
    )
    question = "How many workers where a few requests take 400 MB?"
    columns = (
        experiment.Column("served_share", "share served", ".3f"),
        experiment.P50,
        experiment.P95,
        experiment.CPU,
        experiment.WORKERS,
        experiment.Column("peak_mb", "group's peak MB", ".0f"),
        experiment.Column("kills", "killed for memory", ".0f"),
        *experiment.FATES,
    )
    loads = (f"{RATE}/s, {SHARE} % large",)

    def arms(self):
        dynamic = servers.fpm(50, 10, 5, 20)
        found = [
            Arm(key, Setting(name, pool, ini=INI), "article" if name != TWO else "a choice")
            for key in ("nginx", "maitred")
            for name, pool in (
                (TWENTY, servers.static(20)),
                (FIFTY, dynamic),
                (TWO, servers.static(2)),
            )
        ]
        return [
            *found,
            Arm("event", Setting(TWENTY, servers.static(20), ini=INI), "article"),
            Arm("prefork", Setting(PREFORK, ini=INI), "default"),
            Arm("maitred", Setting(PER_CORE, ini=INI)),
            Arm("maitred", Setting(AUTO, servers.AUTO, ini=INI), "auto"),
        ]

    def measure_arm(self, lab, arm):
        with group.Group(GROUP_MB) as within, lab.serving(arm, within=within) as server:
            experiment.checked(server, PAGE, "thumbnail")
            path = os.path.join(lab.directory, "pictures.txt")
            with open(path, "w", encoding="ascii") as file:
                for weight, page in ((100 - SHARE, PAGE), (SHARE, LARGE)):
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
                "--contains",
                "thumbnail",
                "--timeout",
                experiment.PATIENCE,
            )
            yield self.loads[0], {**found, "kills": within.kills(), "peak_mb": within.peak_mb()}

    def charts(self, records):
        return [
            self.bar_chart(
                records, "b14-share", "Share of requests that were served", "", "served_share"
            ),
            self.bar_chart(
                records, "b14-kills", "Processes killed for lack of memory", "", "kills"
            ),
        ]

    def findings(self, records):
        lines = []
        for key, name in [(arm.server, arm.setting.name) for arm in self.arms()]:
            get = lambda figure, key=key, name=name: records.median(key, name, figure)
            if get("served_share") is not None:
                lines.append(
                    f"{servers.NAMES[key]}, {name}: {100 * get('served_share'):.1f} % served, p95"
                    f" {shown(get('p95_ms'))} ms, {shown(get('refused'), '.0f')} refused,"
                    f" {shown(get('kills'), '.0f')} killed."
                )
        return lines

    def verdict(self, records):
        get = lambda key, name, figure: records.median(key, name, figure)
        few, many = get("nginx", TWO, "kills"), get("nginx", TWENTY, "kills")
        kills, failed = get("maitred", TWENTY, "kills"), get("maitred", TWENTY, "failed")
        refused, late = get("maitred", TWO, "refused"), get("nginx", TWO, "max_ms")
        if not experiment.known(few, many, kills, failed, refused, late):
            return ""
        words = (
            f"The average of settled workers says nothing about this: what counts is how many large"
            f" requests there are at a time. 2 workers had {shown(few, '.0f')} killed, 20"
            f" {shown(many, '.0f')}."
        )
        if kills > failed:
            words += (
                " The maitred of this run had a request run again whose worker was killed, as it does"
                f" no more: with 20 workers {shown(failed, '.0f')} that failed cost"
                f" {shown(kills, '.0f')} kills."
            )
        if refused > 0:
            words += (
                f" With 2 workers it refused {shown(refused, '.0f')} requests, where php-fpm"
                f" answered all, the slowest after {shown(late)} ms: where a few requests take a"
                " thousand times as long as the others, it takes a queue for hopeless that is not."
            )
        return words

    def answer(self, records):
        get = lambda key, name, figure: records.median(key, name, figure)

        def said(key, name):
            share, kills = get(key, name, "served_share"), get(key, name, "kills")
            return (
                "–"
                if share is None
                else f"{100 * share:.1f} % served, {shown(kills, '.0f')} killed"
            )

        return (
            f"No more than fit at their largest: php-fpm with 20 {said('nginx', TWENTY)}, with 2"
            f" {said('nginx', TWO)}; maitred with 20 {said('maitred', TWENTY)}, with `auto`"
            f" {said('maitred', AUTO)}."
        )
