"""WordPress with common plugins in snapshot mode, beside nginx + php-fpm."""

import contextlib
import dataclasses
import json
import os
import random
import shutil
import urllib.parse
import urllib.request

import cold
import load
import managed
import peers
import report
import rows
import wordpress

PROJECT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
RECIPE = os.path.join(PROJECT, "integrations", "wordpress", "snapshot")
PLUGINS = os.path.join(PROJECT, "tests", "fixtures", "wordpress-plugins")
# What a small shop has. The first is in Debian's package.
ACTIVE = ("akismet/akismet.php", "shop.php", "contact-form.php", "search-engines.php",
          "caching-headers.php", "members.php")
CLASSIC_PATHS = ("/wp-admin/", "/wp-login.php", "/wp-comments-post.php")
HOST = "blog.test"
WORKERS = 4
WARM_SECONDS = 5
CONNECTIONS = 4  # more would leave requests behind when the load generator ends
REWINDS = 100_000
PAGES = {"front page": "/", "search": "/?s=soup", "REST API": "/wp-json/wp/v2/posts"}
STATIC = {managed.WWW: {"pm": "static", "max_children": WORKERS}}
VARIABLE = "MAITRED_SNAPSHOT_WITH_PLUGINS"


class Booted(cold.Blog):
    """maitred, which boots as much of WordPress as `recipe` says."""

    recipe = ""

    def config(self):
        pool = {
            "mode": "snapshot", "script": f"{self.place.root}/maitred-index.php",
            "rewinds_per_child": REWINDS, "warm_requests": ["/"],
        }
        lines = [f"{key} = {json.dumps(value)}" for key, value in pool.items()]
        lines.append(f'env = {{ RECIPE = "{self.recipe}", VERSION = "{self.version}" }}')
        www, site = super().config().split("[[sites]]")
        www = "\n".join(line for line in www.splitlines() if not line.startswith("env = "))
        classic = '[pools.classic]\npm = "static"\nmax_children = 1\n'
        more = f'classic_pool = "classic"\nclassic_paths = {json.dumps(CLASSIC_PATHS)}\n'
        site = site.replace('front_controller = "/index.php"', 'app = "wordpress"')
        return "\n".join([www, *lines, classic, "[[sites]]" + site + more])


class WithoutPlugins(Booted):
    """The boot ends before the plugins."""

    name = "maitred, without plugins in the boot"


class Traced(Booted):
    """The boot ends at the first read of the request."""

    name = "maitred, traced"
    recipe = "traced"


class Whole(Booted):
    """The boot ends at `wp_loaded`, right or not."""

    name = "maitred, all in the boot"
    recipe = "1"


KINDS = (managed.Fpm, cold.Blog, WithoutPlugins, Traced, Whole)


def fill(bench, root):
    """Installs WordPress, its plugins and some posts, and then fixes its address."""
    for name in ("maitred-index.php", "0-maitred-snapshot.php"):
        folder = root if name.startswith("maitred") else os.path.join(root, "wp-content/mu-plugins")
        os.makedirs(folder, exist_ok=True)
        shutil.copy(os.path.join(RECIPE, name), folder)
    for name in ACTIVE[1:]:
        shutil.copy(os.path.join(PLUGINS, name), os.path.join(root, "wp-content/plugins"))
    shutil.copy(os.path.join(PLUGINS, "content.php"), root)
    with bench.managing(managed.Fpm, STATIC, root=root, front_controller=True) as server:
        wordpress.install(server.port)
        asked = urllib.parse.urlencode({"plugins": ",".join(ACTIVE), "password": "none of loopback's"})
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/content.php?{asked}") as said:
            text = said.read().decode()
    if not text.startswith("products "):
        raise peers.CannotStart(f"WordPress was not filled: {text[:400]}")
    path = os.path.join(root, "wp-config.php")
    with open(path, encoding="utf-8") as file:
        config = file.read()
    config = config.replace("'http://' . $_SERVER['HTTP_HOST']", f"'http://{HOST}'")
    recipe = f"$recipe = getenv('RECIPE');\ndefine('{VARIABLE}', '1' === $recipe ? true : $recipe);\n"
    with open(path, "w", encoding="utf-8") as file:
        file.write(config.replace("<?php\n", "<?php\n" + recipe, 1))


def sample_all(bench, root):
    """{(page, kind): samples}, in random order in each round."""
    samples = {}
    with contextlib.ExitStack() as stack:
        how = {"root": root, "front_controller": True}
        servers = {
            kind: stack.enter_context(bench.managing(kind, STATIC, **how)) for kind in KINDS
        }
        for page, path in PAGES.items():
            asked = load.Load(path, CONNECTIONS, host=HOST)
            for server in servers.values():
                load.measure(server.port, server.leaders, asked, WARM_SECONDS)
            for _ in range(bench.options.rounds):
                for kind in random.sample(KINDS, len(KINDS)):
                    server = servers[kind]
                    sample = load.measure(
                        server.port, server.leaders, asked, bench.options.seconds
                    )
                    samples.setdefault((page, kind), []).append(sample)
            report.say(f"{TITLE}: {page}: " + "; ".join(
                f"{kind.name} {report.median(samples[page, kind], 'cpu_us') / 1e3:.1f} ms, "
                f"{report.median(samples[page, kind], 'per_second'):.1f}/s" for kind in KINDS
            ))
    return samples


def measure_booted_blog(bench):
    """Requests per second and processor time of pages, for each recipe."""
    with wordpress.unpacked(bench.directory) as root:
        fill(bench, root)
        return section(sample_all(bench, root))


def section(samples):
    """The table."""
    lines, outcomes = [], []
    for (page, kind), each in samples.items():
        lines.append((page, kind.name, report.spread(each, "per_second", ".1f"),
                      report.spread(each, "cpu_us", ".0f"), str(sum(one.errors for one in each))))
    for page in PAGES:
        ours, theirs = samples[page, Traced], samples[page, managed.Fpm]
        by_round = [a.per_second / b.per_second for a, b in zip(ours, theirs)]
        ratio = report.median(ours, "per_second") / report.median(theirs, "per_second")
        outcomes.append(report.Outcome(
            f"{TITLE}, traced: {page}: {rows.RATE}", managed.Fpm.name, f"≥ {rows.BOOTED_BLOG_RATIO}",
            ratio, f"{ratio:.2f} ({min(by_round):.2f}–{max(by_round):.2f})",
            ratio >= rows.BOOTED_BLOG_RATIO and not sum(one.errors for one in ours),
        ))
    text = (
        f"Each server has {WORKERS} workers and {CONNECTIONS} clients; CPU is without the database's. "
        f"Plugins: {', '.join(name.split('/')[0].removesuffix('.php') for name in ACTIVE)}. "
        f"The traced boot ends where a plugin first reads the request."
    )
    columns = ("page", "server", "requests/s", "CPU µs per request", "errors")
    as_json = {f"{page}, {kind.name}": [dataclasses.asdict(one) for one in each]
               for (page, kind), each in samples.items()}
    return report.Section(TITLE, text, columns, lines, outcomes, as_json)


TITLE = "WordPress with plugins in snapshot mode"
MEASUREMENTS = {TITLE: measure_booted_blog}
