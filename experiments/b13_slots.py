"""B13: a database with ten connections, or ten that may work at a time."""

import experiment
import servers
from experiment import Arm
from records import shown
from servers import Setting

SLOTS = 10
USERS = 40
COUNTS = (5, 10, 20, 40)
REFUSES, WAITS = f"{SLOTS} connections, others refused", f"{SLOTS} at work, others wait inside"
PAGES = {REFUSES: "/slots.php", WAITS: "/slots.php?locks=1"}
PLENTY = 500
PREFORK, PREFORK_TEN, AUTO = (
    "default (150 at most)",
    "10 at most",
    "auto",
)


class Slots(experiment.Experiment):
    """Closed loop; the database is the bottleneck."""

    id = "B13"
    title = "A database with ten slots"
    source = "Apache with mod_php against nginx with php-fpm; PHP-FPM – process management"
    concluded = (
        "The drop of an application at high concurrency was put down to too few connections of the"
        " database; when `max_children` is reached, have more children."
    )
    how = (
        f"{USERS} users who ask again at once for a page of 2 ms of processor time and 50 ms in"
        f" MariaDB. Once MariaDB takes {SLOTS} connections, and one of the administrator's, so the"
        f" page fails if it gets none; once it takes {PLENTY}, but only {SLOTS} questions go on at"
        f" a time (locks), as with a busy disk or table. At most {SLOTS} / 52 ms ="
        f" {SLOTS / 0.052:.0f} pages a second can be made."
    )
    question = "More workers than the database has connections?"
    columns = (
        experiment.SERVED,
        experiment.Column("served_share", "share served", ".3f"),
        experiment.P50,
        experiment.P95,
        experiment.CPU,
        experiment.WORKERS,
        *experiment.FATES,
    )
    loads = (REFUSES, WAITS)
    shortest = 0.5

    def arms(self):
        found = [
            Arm(key, Setting(f"static, {count}", servers.static(count)))
            for key in ("nginx", "maitred")
            for count in COUNTS
        ]
        return [
            *found,
            Arm("event", Setting("static, 20", servers.static(20))),
            Arm("prefork", Setting(PREFORK), "default"),
            Arm("prefork", Setting(PREFORK_TEN, apache=servers.prefork(10, 1, 10, 10))),
            Arm("maitred", Setting(AUTO, servers.AUTO), "auto"),
        ]

    def measure_arm(self, lab, arm):
        database = lab.mariadb()
        setting = experiment.dataclasses.replace(
            arm.setting, env={"DATABASE_SOCKET": database.socket}
        )
        of_database = experiment.dataclasses.replace(arm, setting=setting)
        for name in self.loads:
            database.query(f"SET GLOBAL max_connections = {SLOTS if name == REFUSES else PLENTY}")
            try:
                with lab.serving(of_database) as server:
                    experiment.checked(server, PAGES[name], "done")
                    yield name, experiment.closed(
                        server,
                        PAGES[name],
                        USERS,
                        self.seconds(lab),
                        "done",
                        warm_up=2,
                    )
            finally:
                database.query(f"SET GLOBAL max_connections = {PLENTY}")

    def charts(self, records):
        return [
            self.bar_chart(
                records, "b13-refuses", REFUSES + ": served", "served/s", "rate", REFUSES
            ),
            self.bar_chart(records, "b13-waits", WAITS + ": p95", "ms", "p95_ms", WAITS),
        ]

    def findings(self, records):
        lines = []
        for name in self.loads:
            for key in ("nginx", "maitred"):
                parts = []
                for count in COUNTS:
                    get = lambda figure, key=key, count=count, name=name: records.median(
                        key, f"static, {count}", figure, name
                    )
                    parts.append(
                        f"{count} workers {shown(get('rate'))}/s, p95 {shown(get('p95_ms'))} ms,"
                        f" {failed_share(get('served_share'))}"
                        " % failed"
                    )
                lines.append(f"{name}, {servers.NAMES[key]}: {'; '.join(parts)}.")
            get = lambda figure, name=name: records.median("maitred", AUTO, figure, name)
            if get("rate") is not None:
                lines.append(
                    f"{name}, maitred with `auto`: {shown(get('rate'))}/s, p95"
                    f" {shown(get('p95_ms'))} ms, {shown(get('workers'))} workers at most,"
                    f" {100 * (1 - get('served_share')):.2g} % failed."
                )
        return lines

    def verdict(self, records):
        ten, forty = (
            records.median("nginx", f"static, {count}", "rate", REFUSES) for count in (10, 40)
        )
        waits = [records.median("nginx", f"static, {count}", "rate", WAITS) for count in (10, 40)]
        if not experiment.known(ten, forty, *waits):
            return ""
        return (
            f"Right about the database, wrong about the children: with 40 workers {shown(forty)} pages a"
            f" second were served between the errors, with 10 {shown(ten)}; where the others wait inside the"
            f" database, 40 served {shown(waits[1])} and 10 {shown(waits[0])}. Leave room: a connection"
            " that was closed counts until MariaDB has noticed, so even 10 workers may fail now and then."
        )

    def answer(self, records):
        get = lambda name, figure: records.median("nginx", name, figure, REFUSES)
        failed = {count: get(f"static, {count}", "served_share") for count in (10, 40)}
        if None in failed.values():
            return "not measured"
        auto = records.median("maitred", AUTO, "served_share", REFUSES)
        return (
            f"No: of 40 workers' answers behind nginx + php-fpm {100 * (1 - failed[40]):.2g} % were"
            f" errors, of 10 workers' {100 * (1 - failed[10]):.2g} %. `auto` does not know how many"
            f" connections a database takes ({'–' if auto is None else f'{100 * (1 - auto):.2g}'} %"
            " errors): give the pool a `max_children`."
        )


def failed_share(served):
    """Per cent of requests that were not served."""
    return "–" if served is None else shown(100 * (1 - served), ".2g")
