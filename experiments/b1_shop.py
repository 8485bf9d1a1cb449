"""B1: fifty users of a shop without caches, as in the first article."""

import experiment
import servers
from experiment import Arm
from records import shown
from servers import Setting

USERS = 50
NO_OPCACHE = {"opcache.enable": "0"}
GUIDE = servers.fpm(125, 37, 25, 75)


class Shop(experiment.Experiment):
    """Closed loop, CPU-bound."""

    id = "B1"
    title = "Fifty users, no pause, no caches: 5 workers, 125, or as many as there are processors"
    source = "PHP-FPM – process management, with siege and Magento"
    concluded = (
        "On 4 processors 50 users got 9.23 answers a second with the default pool (dynamic, 5) and"
        " 10.12 with the one that its formula gives (dynamic, 125: memory by resident size of a"
        " worker). The shortest answer went from 0.30 s to 2.77 s, the longest from 6.65 s to 8.59"
        " s, which it says need not worry anybody; the processors were full in both runs. «More"
        " children» is its advice whenever `max_children` is reached."
    )
    how = (
        "WordPress with MariaDB instead of Magento, OPcache off as in the article, five pages by"
        " chance, 50 users who ask again at once, two processors for servers, database and"
        " generator. 125 is what the article's formula gave on 8 GB; it is taken as it is."
    )
    question = "CPU-bound pages: 5 workers, or as many as memory takes?"
    columns = (
        experiment.SERVED,
        experiment.P50,
        experiment.Column("min_ms", "least ms"),
        experiment.Column("max_ms", "longest ms"),
        experiment.CPU,
        experiment.WORKERS,
        experiment.Column("private_mb", "workers' private MB", ".0f"),
        experiment.Column("rss_mb", "their RSS, added up, MB", ".0f"),
        *experiment.FATES,
    )
    loads = (f"{USERS} users",)
    shortest = 2
    paths = ("/", "/sample-page/", "/author/admin/", "/?s=hello", "/?s=world")

    def arms(self):
        pools = {
            "default (dynamic, 5)": (servers.FPM_DEFAULT, "default"),
            "article's (dynamic, 125)": (GUIDE, "article"),
        }
        found = []
        for key in ("nginx", "event", "maitred"):
            found += [
                Arm(key, Setting(name, pool, ini=NO_OPCACHE), marker)
                for name, (pool, marker) in pools.items()
                if key != "maitred" or marker == "article"
            ]
        return [
            *found,
            Arm("prefork", Setting("default (150 at most)", ini=NO_OPCACHE), "default"),
            Arm("maitred", Setting("static, 2 per processor", ini=NO_OPCACHE)),
            Arm("maitred", Setting("auto", servers.AUTO, ini=NO_OPCACHE), "auto"),
        ]

    def measure_arm(self, lab_, arm):
        root = lab_.application("wordpress")
        with lab_.serving(arm, root, front_controller=True) as server:
            for path in self.paths:
                experiment.checked(server, path, "</html>")
            urls = [experiment.asking.url(server, path) for path in self.paths[1:]]
            found = experiment.closed(
                server,
                self.paths[0],
                USERS,
                self.seconds(lab_),
                "</html>",
                *urls,
                warm_up=3,
                patience="120s",
            )
            yield self.loads[0], {**found, **experiment.asking.memory(server)}

    def charts(self, records):
        return [
            self.bar_chart(records, "b1-served", "Answers a second, 50 users", "served/s", "rate"),
            self.bar_chart(records, "b1-longest", "Longest answer, 50 users", "ms", "max_ms"),
        ]

    def findings(self, records):
        get = lambda server, setting, name: records.median(server, setting, name)
        five, many = "default (dynamic, 5)", "article's (dynamic, 125)"
        ours, auto = "static, 2 per processor", "auto"
        served = {
            "php-fpm with 5": get("nginx", five, "rate"),
            "with 125": get("nginx", many, "rate"),
        }
        return [
            (
                f"nginx + php-fpm served {shown(served['php-fpm with 5'])}/s with 5 workers and"
                f" {shown(served['with 125'])}/s with 125:"
                f" {experiment.times(served['with 125'], served['php-fpm with 5'])} times as many,"
                f" and the shortest answer went from {shown(get('nginx', five, 'min_ms'))} ms to"
                f" {shown(get('nginx', many, 'min_ms'))} ms, the longest from"
                f" {shown(get('nginx', five, 'max_ms'))} ms to"
                f" {shown(get('nginx', many, 'max_ms'))} ms."
            ),
            (
                f"maitred by itself served {shown(get('maitred', ours, 'rate'))}/s with "
                f"{shown(get('maitred', ours, 'workers'))} workers, and with `auto` "
                f"{shown(get('maitred', auto, 'rate'))}/s with "
                f"{shown(get('maitred', auto, 'workers'))} at most"
                f"{wanted(records)}."
            ),
        ]

    def verdict(self, records):
        five, many = (
            records.median("nginx", name, "rate")
            for name in ("default (dynamic, 5)", "article's (dynamic, 125)")
        )
        if not experiment.known(five, many):
            return ""
        word = "no more" if many < 1.05 * five else f"{many / five:.2f} times as much"
        return (
            f"Where pages compute, 125 workers do {word} than 5, since the processors are full in"
            " either case. The article's own figures show it: what it gains in rate it pays in"
            " answers that all take as long as the slowest. `max_children reached` says that"
            " requests wait, not that more workers would do more."
        )


def wanted(records):
    """What `auto` had come to at the end."""
    said = records.values(("maitred", "auto", Shop.loads[0]), "size")
    return f"; at its end it wanted {said[0].partition(' (')[0]}" if said else ""
