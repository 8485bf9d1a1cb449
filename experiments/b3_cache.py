"""B3: a hundred visitors who think, with and without a page cache, as in the third article."""

import experiment
import lab as laboratory
import servers
from experiment import Arm
from records import shown
from servers import Setting

USERS = 100
ARTICLE = servers.fpm(6, 3, 2, 4)
DYNAMIC, ONDEMAND, STATIC = "article's dynamic, 6", "article's ondemand, 6", "article's static, 6"
CACHED = "article's static, 6, and page cache"
PER_CORE, AUTO = "static, 2 per processor", "auto"


class Cache(experiment.Experiment):
    """Closed loop with think time, cold."""

    id = "B3"
    title = "A hundred visitors: dynamic, ondemand, static, and a page cache"
    source = "nginx's FastCGI cache and pm static, with Locust"
    concluded = (
        "100 visitors who think for 0.3 to 1 s: dynamic (6/3/2/4) served about 5 a second with"
        " 17–19 % failed, ondemand 4–6 with more failures at the start, static 20 % more; with"
        " nginx's cache a median of 170 ms, more than 100 a second and 0.53 % failed."
    )
    how = (
        "WordPress's front page (light) and MediaWiki's main page with SQLite (heavy), 100 users"
        " who think for 0.3 to 1 s, all there after a second, from a server that has answered once:"
        " no warm-up is left out. nginx's cache is set as the article has it, which ignores cookies"
        " and so shows one visitor what was made for another; maitred's keeps what RFC 9111 and the"
        " application's cookies allow. MediaWiki knows of a cache (`$wgUseCdn`), so it"
        " sends `s-maxage`."
    )
    question = "What does a page cache change?"
    columns = (
        experiment.SERVED,
        experiment.P50,
        experiment.P95,
        experiment.CPU,
        experiment.WORKERS,
        experiment.Column("first_ms", "first answer ms"),
        *experiment.FATES,
    )
    loads = ("wordpress", "mediawiki")
    shortest = 0.6

    def arms(self):
        ondemand = {"pm": "ondemand", "max_children": 6, "process_idle_timeout": "20s"}
        found = []
        for key in ("nginx", "event", "maitred"):
            for name, pool in (
                (DYNAMIC, ARTICLE),
                (ONDEMAND, ondemand),
                (STATIC, servers.static(6)),
            ):
                if key != "event" or name == STATIC:
                    found.append(Arm(key, Setting(name, pool), "article"))
            if key != "event":
                found.append(Arm(key, Setting(CACHED, servers.static(6), cached=True), "article"))
        return [
            *found,
            Arm("prefork", Setting("default (150 at most)"), "default"),
            Arm("maitred", Setting(PER_CORE)),
            Arm("maitred", Setting(AUTO, servers.AUTO), "auto"),
        ]

    def measure_arm(self, lab, arm):
        for name in self.loads:
            path, contains = laboratory.PAGES[name]
            root = lab.application(name)
            setting = experiment.dataclasses.replace(arm.setting, env=lab.env.get(name, {}))
            of_application = experiment.dataclasses.replace(arm, setting=setting)
            with lab.serving(of_application, root, front_controller=True) as server:
                first = experiment.asking.first_answers(server, path, 1)[0]
                found = experiment.closed(
                    server,
                    path,
                    USERS,
                    self.seconds(lab),
                    contains,
                    "--think",
                    "0.3s..1s",
                    "--ramp-up",
                    "1s",
                    warm_up=0,
                )
                yield name, {**found, "first_ms": first}

    def charts(self, records):
        return [
            self.bar_chart(
                records,
                f"b3-{name}",
                f"{name}: answers a second, 100 visitors",
                "served/s",
                "rate",
                name,
            )
            for name in self.loads
        ]

    def findings(self, records):
        lines = []
        get = lambda key, name, figure, load="wordpress": records.median(key, name, figure, load)
        words = [
            f"{name} {shown(get('nginx', name, 'rate'))}/s with a p50 of "
            f"{shown(get('nginx', name, 'p50_ms'))} ms"
            for name in (DYNAMIC, ONDEMAND, STATIC)
        ]
        lines.append(
            f"WordPress behind nginx + php-fpm: {'; '.join(words)}. All three hold six busy workers"
            " under this load, so no mode can be 20 % better than another."
        )
        for key in ("nginx", "maitred"):
            lines.append(
                f"{servers.NAMES[key]}, the same with a page cache:"
                f" {shown(get(key, STATIC, 'rate'))} → {shown(get(key, CACHED, 'rate'))}/s, p50"
                f" {shown(get(key, STATIC, 'p50_ms'))} → {shown(get(key, CACHED, 'p50_ms'))} ms,"
                f" CPU per answer {shown(get(key, STATIC, 'cpu_ms'))} →"
                f" {shown(get(key, CACHED, 'cpu_ms'))} ms."
            )
        lines.append(
            f"maitred with `auto`: {shown(get('maitred', AUTO, 'rate'))}/s, p50"
            f" {shown(get('maitred', AUTO, 'p50_ms'))} ms with"
            f" {shown(get('maitred', AUTO, 'workers'))} workers; with 2 per"
            f" processor {shown(get('maitred', PER_CORE, 'rate'))}/s and"
            f" {shown(get('maitred', PER_CORE, 'p50_ms'))} ms."
        )
        return lines

    def verdict(self, records):
        get = lambda name, figure: records.median("nginx", name, figure, "wordpress")
        dynamic, static, kept = get(DYNAMIC, "rate"), get(STATIC, "rate"), get(CACHED, "rate")
        if not experiment.known(dynamic, static, kept):
            return ""
        word = (
            "is not there"
            if static < 1.1 * dynamic
            else f"is {100 * (static / dynamic - 1):.0f} % here"
        )
        return (
            f"The 20 % that static is said to bring {word} ({experiment.times(static, dynamic)}"
            " times dynamic's rate). The cache is what the article says it is:"
            f" {experiment.times(kept, static)} times the rate, until the visitors' own pauses are"
            " the limit. Its recipe may show one visitor what was made for another; a cache that"
            " heeds cookies and `Cache-Control` costs no more."
        )

    def answer(self, records):
        return " ".join(self.findings(records)[1:3])
