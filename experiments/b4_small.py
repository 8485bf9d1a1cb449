"""B4: more and more users in 256 MB, as in the article on Apache's models."""

import os

import experiment
import group
import servers
from experiment import Arm
from records import shown
from servers import Setting

GROUP_MB = 256
PATIENCE = "1s"
USERS = (10, 100)
EIGHT, FOUR = "first try (8 at most, 100 each)", "article's best (4 at most, 1000 each)"
FIVE, FOUR_FPM = "default (dynamic, 5)", "article's (dynamic, 4)"
PREFORK, PER_CORE, AUTO = "default (150 at most)", "static, 2 per processor", "auto"
TWENTY = "20 at most"


class Small(experiment.Experiment):
    """A ramp of users with a time-out of a second, one processor and 256 MB."""

    id = "B4"
    title = "256 MB: from one user to ten and to a hundred"
    source = "Apache's multi-processing modules on a VPS of 256 MB, with blitz.io"
    concluded = (
        "Users who wait for a second at most and ask again at once, 1 to N of them in 60 s. Prefork"
        " + mod_php with 8 processes failed at 10 users; with 4 it had about 200 hits a minute at"
        " 10 and failed at 20. Worker + mod_php: 1980 hits and 24 timeouts at 100. nginx + php-fpm"
        " with 5: 1766 and 442, with 4: 1667 and 491. «nginx for less than 1 GB, Apache's worker"
        " model for more.» Sizes were counted by resident memory, 24 MB a process."
    )
    how = (
        f"WordPress's front page, MariaDB outside the control group of {GROUP_MB} MB (no swap) that"
        " holds the servers; they have one processor, generator and database the other. mod_php"
        " cannot be had with threads from Debian, so the worker model is that of Apache with"
        f" php-fpm. The ramp takes the whole of a run; clients that have waited for {PATIENCE} are"
        " timed out, and ask again."
    )
    question = "What serves best in 256 MB?"
    columns = (
        experiment.Column("served", "hits", ".0f"),
        experiment.TIMED_OUT,
        experiment.REFUSED,
        experiment.FAILED,
        experiment.WRONG,
        experiment.P50,
        experiment.CPU,
        experiment.WORKERS,
        experiment.Column("peak_mb", "group's peak MB", ".0f"),
        experiment.Column("kills", "killed for memory", ".0f"),
        experiment.Column("private_mb", "workers' private MB", ".0f"),
        experiment.Column("rss_mb", "their RSS, added up, MB", ".0f"),
    )
    loads = tuple(f"1 to {users} users" for users in USERS)
    shortest = 0.8

    def arms(self):
        return [
            Arm("prefork", Setting(EIGHT, apache=servers.prefork(2, 2, 4, 8, 100)), "article"),
            Arm("prefork", Setting(FOUR, apache=servers.prefork(1, 1, 2, 4, 1000)), "article"),
            Arm("prefork", Setting(TWENTY, apache=servers.prefork(5, 5, 10, 20, 1000)), "article"),
            Arm("prefork", Setting(PREFORK), "default"),
            Arm("event", Setting(FOUR_FPM, servers.fpm(4, 2, 1, 3)), "article"),
            Arm("nginx", Setting(FIVE, servers.FPM_DEFAULT), "default"),
            Arm("nginx", Setting(FOUR_FPM, servers.fpm(4, 2, 1, 3)), "article"),
            Arm("maitred", Setting(FOUR_FPM, servers.fpm(4, 2, 1, 3)), "article"),
            Arm("maitred", Setting(PER_CORE)),
            Arm("maitred", Setting(AUTO, servers.AUTO), "auto"),
        ]

    def measure_arm(self, lab, arm):
        root = lab.application("wordpress")
        one = {min(os.sched_getaffinity(0))}
        for users, name in zip(USERS, self.loads):
            with group.Group(GROUP_MB) as within, lab.serving(
                arm,
                root,
                front_controller=True,
                within=within,
                processors=one,
            ) as server:
                experiment.checked(server, "/", "</html>")
                seconds = self.seconds(lab)
                found = experiment.closed(
                    server,
                    "/",
                    users,
                    seconds,
                    "</html>",
                    "--ramp-up",
                    f"{seconds}s",
                    warm_up=0,
                    patience=PATIENCE,
                )
                held = experiment.asking.memory(server)
                yield name, {**found, **held, "kills": within.kills(), "peak_mb": within.peak_mb()}

    def charts(self, records):
        return [
            self.bar_chart(
                records,
                f"b4-{users}",
                f"Hits in a second or less, 1 to {users} users, {GROUP_MB} MB",
                "hits",
                "served",
                name,
            )
            for users, name in zip(USERS, self.loads)
        ]

    def findings(self, records):
        lines = []
        for name in self.loads:
            words = []
            for server, setting, load in records.rows():
                if load == name and records.values((server, setting, load), "served"):
                    get = lambda figure, s=server, t=setting: records.median(s, t, figure, name)
                    words.append(
                        (
                            get("served"),
                            (
                                f"{servers.NAMES[server]} «{setting}» {shown(get('served'), '.0f')}"
                                f" hits, {shown(get('timed_out'), '.0f')} timed out,"
                                f" {shown(get('refused'), '.0f')} refused"
                            ),
                        )
                    )
            words.sort(key=lambda each: -each[0])
            if words:
                lines.append(f"{name}: most {words[0][1]}; least {words[-1][1]}.")
        killed = [
            f"{servers.NAMES[s]} «{t}»"
            for s, t, load in records.rows()
            if (records.median(s, t, "kills", load) or 0) > 0
        ]
        lines.append(
            "Processes were killed for lack of memory: "
            + (", ".join(dict.fromkeys(killed)) or "nowhere")
            + "."
        )
        rss, own = (
            records.median("nginx", FIVE, figure, self.loads[-1])
            for figure in ("rss_mb", "private_mb")
        )
        lines.append(
            f"Five workers of php-fpm after the larger load: {shown(rss, '.0f')} MB by resident"
            f" size, {shown(own, '.0f')} MB of their own."
        )
        many, held, peak = (
            records.median("prefork", PREFORK, figure, self.loads[-1])
            for figure in ("workers", "rss_mb", "peak_mb")
        )
        lines.append(
            f"Prefork by default: {shown(many, '.0f')} processes, {shown(held, '.0f')} MB by"
            f" resident size, in a group that never held more than {shown(peak, '.0f')} MB."
        )
        return lines

    def verdict(self, records):
        name = self.loads[-1]
        few, many = (
            records.median("prefork", setting, "served", name) for setting in (FOUR, PREFORK)
        )
        fpm, ours = records.median("nginx", FIVE, "served", name), records.median(
            "maitred", AUTO, "served", name
        )
        if not experiment.known(few, many, fpm, ours):
            return ""
        return (
            f"Prefork by Debian's default had {shown(many, '.0f')} hits where the article's 4"
            f" processes had {shown(few, '.0f')}; nginx + php-fpm as it comes had"
            f" {shown(fpm, '.0f')}, maitred {shown(ours, '.0f')}. With one processor and pages that"
            " compute, clients that wait for a second are served by the server that makes few"
            " wait, not by the one that starts most processes."
        )

    def answer(self, records):
        return self.findings(records)[1]
