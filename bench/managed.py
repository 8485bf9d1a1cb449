"""maitred and php-fpm with pools of every kind, which can be reloaded and upgraded.

A pool is a table of php-fpm's settings without the prefix `pm.`, as maitred calls them, so that
both get the same.
"""

import json
import os
import re
import shutil
import signal
import time

import peers
import processes

WWW = "www"
# Until a reload or an upgrade must be over; far longer than either may take.
CHANGE_SECONDS = 60
LOOK_SECONDS = 0.002
# As many connections may wait for php-fpm as for nginx: none shall be turned away.
FPM_BACKLOG = 4096


class ChangeRefused(Exception):
    """A server did not do what a signal asked of it."""


class Log:
    """What a server says in a file from now on."""

    def __init__(self, path):
        self.path = path
        self.offset = os.path.getsize(path)

    def lines(self):
        """The whole lines that have come since the last look."""
        with open(self.path, "rb") as file:
            file.seek(self.offset)
            whole, end, _ = file.read().rpartition(b"\n")
        self.offset += len(whole) + len(end)
        return whole.decode(errors="replace").splitlines()


def await_words(words, path):
    """Waits until a server has said something in a file."""
    def are_there():
        with open(path, encoding="utf-8", errors="replace") as file:
            return re.search(words, file.read()) is not None

    processes.wait_until(are_there, peers.START_SECONDS, f"\"{words}\" in {path}")


class Change:
    """A reload or an upgrade that a signal asks for."""

    def __init__(self, pid, number, log_path, done, failed):
        self.log = Log(log_path)
        self.done, self.failed = done, failed
        self.deadline = time.monotonic() + CHANGE_SECONDS
        os.kill(pid, number)

    def is_over(self):
        """Whether the server has said that it is done; raises ChangeRefused if it will not be."""
        for line in self.log.lines():
            if re.search(self.failed, line):
                raise ChangeRefused(line)
            if re.search(self.done, line):
                return True
        if time.monotonic() > self.deadline:
            raise TimeoutError(f"waited {CHANGE_SECONDS} s for \"{self.done}\" in {self.log.path}")
        return False

    def wait(self):
        """Waits until it is over."""
        while not self.is_over():
            time.sleep(LOOK_SECONDS)


class Managed:
    """What both servers with pools of their own have in common."""

    def configure(self, pools):
        """Takes the pools' settings, as {name: {setting: value}}."""
        self.pools = pools
        self.version = 0
        return self

    def await_count(self, count, seconds=peers.START_SECONDS):
        """Waits until there are that many workers."""
        processes.wait_until(
            lambda: len(self.workers()) == count, seconds, f"{count} workers of {self.name}"
        )


class Maitred(Managed, peers.Maitred):
    """maitred with a configuration file. Pools but `www` have a host of their name."""

    log_path = ""

    def start(self):
        self.write_config()
        command = [self.installed(), "serve", "--config", self.config_path()]
        process, self.log_path = self.launch("maitred", command)
        self.await_port(process, self.log_path)
        await_words(r"maitred: serving ", self.log_path)

    def config_path(self):
        """maitred.toml's path."""
        return self.place.file(f"maitred-{self.port}.toml")

    def write_config(self):
        """Replaces maitred.toml atomically."""
        written = self.place.file(f"maitred-{self.port}.toml.new", self.config())
        os.rename(written, self.config_path())

    def config(self):
        """maitred.toml."""
        lines = [f'listen = "127.0.0.1:{self.port}"', f'admin_socket = "{self.admin_socket()}"']
        for name, settings in self.pools.items():
            lines.append(f"[pools.{name}]")
            lines += [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
            lines.append(f'env = {{ VERSION = "{self.version}" }}')
        for name in self.pools:
            lines.append("[[sites]]")
            if name != WWW:
                lines.append(f'hosts = ["{name}"]')
            lines += [f'root = "{self.place.root}"', f'pool = "{name}"']
        return "\n".join(lines) + "\n"

    def reload(self):
        """Changes every pool and asks for a reload."""
        self.version += 1
        self.write_config()
        done, failed = r" reloaded: ", r"reload is refused|goes on as it was|a later reload"
        return Change(self.supervisor(), signal.SIGHUP, self.log_path, done, failed)

    def install_copy(self):
        """Puts copies of the programs where they can be replaced."""
        self.program = os.path.join(self.place.directory, f"installed-{self.port}", "maitred")
        os.makedirs(os.path.dirname(self.program), exist_ok=True)
        self.replace_program()

    def replace_program(self):
        """Replaces the programs, each atomically, as a package manager does."""
        for name in ("maitred", "maitred-php"):
            new = os.path.join(os.path.dirname(self.program), name)
            shutil.copy(os.path.join(os.path.dirname(peers.Maitred.program), name), new + ".new")
            os.rename(new + ".new", new)

    def upgrade(self):
        """Asks for an upgrade."""
        done, failed = r" upgraded to ", r"upgrade is refused|upgrade again"
        return Change(self.supervisor(), signal.SIGUSR2, self.log_path, done, failed)

    def supervisor(self):
        """The pid that was started and stays the same across upgrades."""
        return self.leaders[0]

    def fronts(self):
        """The pids of the processes that talk with clients."""
        return processes.titled(self.leaders, "maitred: front")

    def zygotes(self):
        """The pids of the processes that fork workers."""
        return processes.titled(self.leaders, "maitred-php: zygote")


class Fpm(Managed, peers.NginxFpm):
    """php-fpm with the same pools, behind nginx, which finds a pool's socket by the host's name."""

    ready = r"ready to handle connections"

    def start(self):
        super().start()
        await_words(self.ready, self.error_log())

    def socket(self, name=None):
        name = name or next(iter(self.pools))
        return self.place.file(f"fpm-{self.port}-{name}.sock")

    def php_rule(self):
        path = self.socket("$host" if WWW not in self.pools else WWW)
        return f"include /etc/nginx/fastcgi.conf; fastcgi_pass unix:{path};"

    def fpm_config_path(self):
        """php-fpm.conf's path, where the parent class writes it."""
        return self.place.file(f"fpm-{self.port}.conf")

    def error_log(self):
        """The file that php-fpm's own messages go to."""
        return self.place.file(f"fpm-{self.port}.error")

    def fpm_config(self):
        user = f"user = {peers.WORKER_USER}\ngroup = {peers.WORKER_USER}" if peers.IS_ROOT else ""
        lines = ["[global]", f"error_log = {self.error_log()}", "daemonize = no"]
        for name, settings in self.pools.items():
            lines += [f"[{name}]", user, f"listen = {self.socket(name)}", "listen.mode = 0666"]
            lines.append(f"listen.backlog = {FPM_BACKLOG}")
            for key, value in settings.items():
                lines.append(f"{key if key == 'pm' else 'pm.' + key} = {value}")
            lines.append(f"env[VERSION] = {self.version}")
        return "\n".join(lines) + "\n"

    def reload(self):
        """Changes every pool and asks for a reload, which is an upgrade as well."""
        self.version += 1
        written = self.place.file(f"fpm-{self.port}.conf.new", self.fpm_config())
        os.rename(written, self.fpm_config_path())
        failed = r" (ERROR|ALERT):"
        return Change(self.supervisor(), signal.SIGUSR2, self.error_log(), self.ready, failed)

    def supervisor(self):
        """The master's pid."""
        return self.leaders[0]

    def fpm_leaders(self):
        """php-fpm's processes without nginx's."""
        return self.leaders[:1]
