"""The four servers that are compared, with the settings of an article or a package, or the defaults.

maitred; nginx with php-fpm; Apache's prefork model with mod_php; Apache's event model with php-fpm.
All serve the same document root with php-fpm's php.ini, without access logs and compression.
"""

import dataclasses
import json
import os

import managed
import peers
import processes

# Debian's www.conf, mpm_prefork.conf and mpm_event.conf.
FPM_DEFAULT = {
    "pm": "dynamic",
    "max_children": 5,
    "start_servers": 2,
    "min_spare_servers": 1,
    "max_spare_servers": 3,
}
PREFORK_DEFAULT = {
    "StartServers": 5,
    "MinSpareServers": 5,
    "MaxSpareServers": 10,
    "MaxRequestWorkers": 150,
    "MaxConnectionsPerChild": 0,
}
EVENT_DEFAULT = {
    "StartServers": 2,
    "MinSpareThreads": 25,
    "MaxSpareThreads": 75,
    "ThreadLimit": 64,
    "ThreadsPerChild": 25,
    "MaxRequestWorkers": 150,
    "MaxConnectionsPerChild": 0,
}
FPM_BACKLOG = 511  # php-fpm's own default
PAGES_VALID = "60m"
# As many requests may wait for php-fpm as its backlog holds, each with two connections of nginx.
NGINX_CONNECTIONS = 8000


@dataclasses.dataclass(frozen=True)
class Setting:
    """What a server is told that it would not do by itself."""

    name: str
    pool: dict = dataclasses.field(default_factory=dict)  # php-fpm's `pm` settings without prefix
    apache: dict = dataclasses.field(default_factory=dict)  # of the multi-processing module
    ini: dict = dataclasses.field(default_factory=dict)  # php_admin_value
    env: dict = dataclasses.field(default_factory=dict)
    terminate: int = 0  # request_terminate_timeout, seconds
    read_timeout: int = 0  # of the web server for PHP's answer, seconds; 0: its default
    backlog: int = FPM_BACKLOG
    cached: bool = False  # keep the answers of scripts


class Experimental:
    """What the servers here have in common: a setting, and a control group to start in."""

    key = ""

    def set_up(self, setting, group=None):
        """Takes the setting, and the group that all processes are to be in."""
        self.setting, self.group = setting, group
        self.pools = {managed.WWW: setting.pool}
        self.version = 0
        return self

    def launch(self, label, command, env=None):
        """As the parent's, in the group."""
        if self.group is not None:
            command = [*self.group.entering(), *command]
        return super().launch(label, command, env)

    def await_first_workers(self):
        """Waits until the workers are there that a pool starts with."""
        pool = self.setting.pool
        if pool.get("pm") == "static":
            self.await_count(pool["max_children"])


class Maitred(Experimental, managed.Maitred):
    """maitred with one pool."""

    key = "maitred"
    name = "maitred"

    def config(self):
        lines = [f'listen = "127.0.0.1:{self.port}"', f'admin_socket = "{self.admin_socket()}"']
        lines += [f"[pools.{managed.WWW}]"]
        # What it has without a word, `auto`, is an arm of its own.
        pool = {"pm": "static", **self.setting.pool}
        if self.setting.terminate:
            pool["request_terminate_timeout"] = f"{self.setting.terminate}s"
        lines += [f"{key} = {json.dumps(value)}" for key, value in pool.items()]
        for table in ("ini", "env"):
            name = "php_admin_value" if table == "ini" else table
            pairs = ", ".join(f'"{k}" = "{v}"' for k, v in getattr(self.setting, table).items())
            lines += [f"{name} = {{ {pairs} }}"] if pairs else []
        lines += ["[[sites]]", f'root = "{self.place.root}"', f'pool = "{managed.WWW}"']
        lines += ['front_controller = "/index.php"'] if self.place.front_controller else []
        lines += ["[sites.cache]", f'valid = "{PAGES_VALID}"'] if self.setting.cached else []
        return "\n".join(lines) + "\n"


class FpmPool:
    """php-fpm's part, for whichever web server is in front."""

    def fpm_config(self):
        """php-fpm.conf."""
        lines = [
            "[global]",
            f"error_log = {self.error_log()}",
            "daemonize = no",
            f"[{managed.WWW}]",
        ]
        if peers.IS_ROOT:
            lines += [f"user = {peers.WORKER_USER}", f"group = {peers.WORKER_USER}"]
        lines += [f"listen = {self.socket()}", "listen.mode = 0666"]
        lines += [f"listen.backlog = {self.setting.backlog}"]
        if self.setting.terminate:
            lines.append(f"request_terminate_timeout = {self.setting.terminate}")
        for key, value in self.setting.pool.items():
            lines.append(f"{key if key == 'pm' else 'pm.' + key} = {value}")
        lines += [f"php_admin_value[{k}] = {v}" for k, v in self.setting.ini.items()]
        lines += [f"env[{k}] = {v}" for k, v in self.setting.env.items()]
        return "\n".join(lines) + "\n"


class NginxFpm(FpmPool, Experimental, managed.Fpm):
    """nginx in front of php-fpm."""

    key = "nginx"
    name = "nginx + php-fpm"

    def upstreams(self):
        if not self.setting.cached:
            return ""
        path = self.place.file(f"nginx-{self.port}-pages")
        key = "$scheme$request_method$host$request_uri"
        return f"fastcgi_cache_path {path} keys_zone=pages:10m; fastcgi_cache_key {key};"

    def php_rule(self):
        rule = f"include /etc/nginx/fastcgi.conf; fastcgi_pass unix:{self.socket()};"
        if self.setting.cached:
            # The second article's own recipe, with what makes it wrong for visitors who log in.
            rule += f" fastcgi_cache pages; fastcgi_cache_valid 200 {PAGES_VALID};"
            rule += " fastcgi_ignore_headers Cache-Control Expires Set-Cookie;"
        if self.setting.read_timeout:
            rule += f" fastcgi_read_timeout {self.setting.read_timeout}s;"
        return rule

    def nginx_config(self):
        few = "worker_connections 4096;"
        return super().nginx_config().replace(few, f"worker_connections {NGINX_CONNECTIONS};")


class Apache(Experimental, managed.Managed):
    """What Apache's configuration has in either model."""

    modules = ()
    default = {}

    def config(self):
        """apache2.conf, with Debian's defaults for connections."""
        user = ""
        if peers.IS_ROOT:
            user = f"User {peers.WORKER_USER}\nGroup {peers.WORKER_USER}"
        folder = "/usr/lib/apache2/modules"
        modules = [f"LoadModule {name}_module {folder}/mod_{name}.so" for name in self.modules]
        model = {**self.default, **self.setting.apache}
        rule = "FallbackResource /index.php" if self.place.front_controller else ""
        lines = [
            f"ServerRoot {self.place.directory}",
            "ServerName 127.0.0.1",
            f"Listen 127.0.0.1:{self.port}",
            f"PidFile {self.place.file(f'apache-{self.port}.pid')}",
            f"DefaultRuntimeDir {self.place.directory}",
            f"ErrorLog {self.place.file(f'apache-{self.port}.error')}",
            *modules,
            user,
            *[f"{name} {value}" for name, value in model.items()],
            f"Timeout {self.setting.read_timeout or 300}",
            "RequestReadTimeout header=20-40,minrate=500 body=10,minrate=500",
            "KeepAlive On",
            "MaxKeepAliveRequests 100",
            "KeepAliveTimeout 5",
            "TypesConfig /etc/mime.types",
            f"DocumentRoot {self.place.root}",
            "DirectoryIndex index.php index.html",
            *self.php_lines(),
            f"<Directory {self.place.root}>",
            "Require all granted",
            "AllowOverride None",
            "Options FollowSymLinks",
            rule,
            "</Directory>",
            '<FilesMatch "\\.php$">',
            f"SetHandler {self.handler()}",
            "</FilesMatch>",
        ]
        return "\n".join(lines) + "\n"


class Prefork(Apache, peers.ApacheModPhp):
    """Apache's prefork model with mod_php."""

    key = "prefork"
    name = "Apache prefork + mod_php"
    modules = ("mpm_prefork", "authz_core", "mime", "dir", "env", "reqtimeout")
    default = {**PREFORK_DEFAULT, "ServerLimit": 150}

    @property
    def worker_title(self):
        """How the command lines of its processes begin."""
        return peers.program("apache2")

    def handler(self):
        """What answers for scripts."""
        return "application/x-httpd-php"

    def php_lines(self):
        """mod_php and its settings."""
        return [
            f"LoadModule php_module {peers.apache_php_module()}",
            f"PHPIniDir {peers.php_ini_directory()}",
            *[f"php_admin_value {name} {value}" for name, value in self.setting.ini.items()],
            *[f"SetEnv {name} {value}" for name, value in self.setting.env.items()],
        ]

    def workers(self):
        """All processes but the first, which serves no request."""
        return [pid for pid in super().workers() if pid not in self.leaders]


class EventFpm(FpmPool, Apache, managed.Fpm):
    """Apache's event model in front of php-fpm."""

    key = "event"
    name = "Apache event + php-fpm"
    modules = ("mpm_event", "authz_core", "mime", "dir", "proxy", "proxy_fcgi", "reqtimeout")
    default = EVENT_DEFAULT

    def handler(self):
        """What answers for scripts."""
        return f'"proxy:unix:{self.socket()}|fcgi://localhost"'

    def php_lines(self):
        """PHP's settings are php-fpm's."""
        return [f"ProxyTimeout {self.setting.read_timeout}"] if self.setting.read_timeout else []

    def start(self):
        path = self.place.file(f"fpm-{self.port}.conf", self.fpm_config())
        fpm, log = self.launch("fpm", [*self.fpm_command(), "--nodaemonize", "--fpm-config", path])

        def listens():
            if fpm.poll() is not None:
                said = peers.tail(log)
                raise peers.CannotStart(f"php-fpm ended with code {fpm.returncode}: {said}")
            return os.path.exists(self.socket())

        processes.wait_until(listens, peers.START_SECONDS, "php-fpm's socket")
        managed.await_words(self.ready, self.error_log())
        path = self.place.file(f"apache-{self.port}.conf", self.config())
        command = [peers.program("apache2"), "-f", path, "-DFOREGROUND"]
        self.await_port(*self.launch("apache", command))


KINDS = {kind.key: kind for kind in (Maitred, NginxFpm, Prefork, EventFpm)}
NAMES = {kind.key: kind.name for kind in KINDS.values()}


def fpm(max_children, start, least, most, **more):
    """A dynamic pool of php-fpm's four figures."""
    return {
        "pm": "dynamic",
        "max_children": max_children,
        "start_servers": start,
        "min_spare_servers": least,
        "max_spare_servers": most,
        **more,
    }


def static(count, **more):
    """A static pool."""
    return {"pm": "static", "max_children": count, **more}


def prefork(start, least, most, workers, per_child=0):
    """Apache's figures, in the order of the third article."""
    return {
        "StartServers": start,
        "MinSpareServers": least,
        "MaxSpareServers": most,
        "MaxRequestWorkers": workers,
        "ServerLimit": workers,
        "MaxConnectionsPerChild": per_child,
    }


AUTO = {"pm": "auto"}
