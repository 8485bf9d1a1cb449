"""Control groups, of version 1 or 2, whichever can be written: of memory, and to come first."""

import contextlib
import os
import time

V1 = "/sys/fs/cgroup/memory"
V2 = "/sys/fs/cgroup"
REMOVE_SECONDS = 10
MB = 1 << 20
V1_PROCESSORS = "/sys/fs/cgroup/cpu"
# The file that says how much one group comes before the others, and the most it takes.
SHARES = {V1_PROCESSORS: ("cpu.shares", 262144), V2: ("cpu.weight", 10000)}


class NoGroups(Exception):
    """Control groups cannot be made here."""


@contextlib.contextmanager
def coming_first():
    """Everything that is started meanwhile has processors before all other programs."""
    parent = V1_PROCESSORS if os.path.isdir(V1_PROCESSORS) else V2
    name, most = SHARES[parent]
    path = os.path.join(parent, f"maitred-experiments-{os.getpid()}")

    def move(folder):
        with open(os.path.join(folder, "cgroup.procs"), "w", encoding="ascii") as file:
            file.write(str(os.getpid()))

    try:
        os.mkdir(path)
        with open(os.path.join(path, name), "w", encoding="ascii") as file:
            file.write(str(most))
        move(path)
    except OSError as error:
        raise NoGroups(f"no control group of processors can be made: {error}") from error
    try:
        yield
    finally:
        move(parent)
        remove(path)


def remove(path):
    """Takes a group away when the last of what was in it has gone."""
    deadline = time.monotonic() + REMOVE_SECONDS
    while True:
        try:
            return os.rmdir(path)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


class Group:
    """One group; what is started in it shares its memory."""

    def __init__(self, limit_mb):
        self.limit_mb = limit_mb
        self.old = os.path.isdir(V1)
        name = f"maitred-experiments-{os.getpid()}"
        self.path = os.path.join(V1 if self.old else V2, name)

    def __enter__(self):
        limit = "memory.limit_in_bytes" if self.old else "memory.max"
        try:
            os.mkdir(self.path)
            self.write(limit, self.limit_mb * MB)
        except OSError as error:
            raise NoGroups(f"no control group of memory can be made: {error}") from error
        return self

    def __exit__(self, *_):
        remove(self.path)

    def write(self, name, value):
        """Sets one of its values."""
        with open(os.path.join(self.path, name), "w", encoding="ascii") as file:
            file.write(str(value))

    def read(self, name):
        """One of its values."""
        with open(os.path.join(self.path, name), encoding="ascii") as file:
            return file.read()

    def entering(self):
        """What has a command run in the group."""
        script = f'echo $$ > {self.path}/cgroup.procs && exec "$@"'
        return ["/bin/sh", "-c", script, "sh"]

    def kills(self):
        """How many processes were killed for lack of memory."""
        text = self.read("memory.oom_control" if self.old else "memory.events")
        values = dict(line.split() for line in text.splitlines())
        return int(values["oom_kill"])

    def peak_mb(self):
        """The most that was in use, caches of files included."""
        name = "memory.max_usage_in_bytes" if self.old else "memory.peak"
        return int(self.read(name)) / MB
