"""Processes seen through /proc: trees, CPU time, private memory; and the end of all we started."""

import ctypes
import os
import signal
import subprocess
import time

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
# prctl(2)
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
LIBC = ctypes.CDLL(None, use_errno=True)

STOP_SECONDS = 10
POLL_SECONDS = 0.02
IDLE_LOOK_SECONDS = 0.1
# Of one core; a server that waits for requests takes far less.
IDLE_SHARE = 0.05


class Gone(Exception):
    """The process ended while it was looked at."""


def stat(pid):
    """The fields of /proc/PID/stat after the name: [0] state, [1] parent, [3] session, …"""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError) as error:
        raise Gone(pid) from error


def everything():
    """All processes as {pid: (parent, session)}."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                fields = stat(name)
            except Gone:
                continue
            found[int(name)] = (int(fields[1]), int(fields[3]))
    return found


def tree(leaders):
    """The leaders, their descendants, and the members of sessions that a leader opened."""
    processes = everything()
    members = {pid for pid, (_, session) in processes.items() if session in leaders}
    members |= {pid for pid in leaders if pid in processes}
    size = -1
    while len(members) != size:
        size = len(members)
        members |= {pid for pid, (parent, _) in processes.items() if parent in members}
    return sorted(members)


def cpu_seconds(leaders):
    """CPU time of a tree since it began, in seconds, ended children included.

    A process's own CPU clock counts all its threads, also ended ones, to the nanosecond
    (clock_getcpuclockid(3)); the children it has waited for are in its cutime and cstime, to
    1/100 s. Children only move from the first to the second, so a difference of two readings
    counts each once.
    """
    total = 0.0
    for pid in tree(leaders):
        try:
            fields = stat(pid)
            total += time.clock_gettime((~pid << 3) | 2)
        except (Gone, OSError):
            continue
        total += (int(fields[13]) + int(fields[14])) / TICKS_PER_SECOND
    return total


def machine_busy_seconds():
    """CPU time the whole machine has spent on anything but idling, in seconds (proc_stat(5))."""
    with open("/proc/stat", encoding="ascii") as file:
        user, nice, system, _idle, _iowait, irq, softirq = map(int, file.readline().split()[1:8])
    return (user + nice + system + irq + softirq) / TICKS_PER_SECOND


def title(pid):
    """The process's command line, as `ps` shows it."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().replace(b"\0", b" ").decode(errors="replace").strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def titled(leaders, prefix):
    """The pids in a tree whose title begins with a prefix."""
    return [pid for pid in tree(leaders) if title(pid).startswith(prefix)]


def private_kb(pid):
    """Memory that only this process holds, in KiB: Private_* of smaps_rollup."""
    return rollup_kb(pid, "Private_")


def written_kb(pid):
    """Memory that this process has written, in KiB: Private_Dirty of smaps_rollup.

    Unlike `private_kb`, without unchanged pages of its program: how many of these the kernel maps differs by
    a megabyte from one start of a program to the next.
    """
    return rollup_kb(pid, "Private_Dirty:")


def proportional_kb(pid):
    """The process's share of the memory it holds, in KiB: Pss of smaps_rollup."""
    return rollup_kb(pid, "Pss:")


def rollup_kb(pid, prefix):
    """The lines of smaps_rollup that begin so, added up, in KiB."""
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
        return sum(int(line.split()[1]) for line in file if line.startswith(prefix))


def adopt_orphans():
    """Makes this process the parent of descendants that lose theirs, so that none escapes it."""
    LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def start(command, log, env=None):
    """Starts a server in a session of its own; it is told to end should we die."""

    def before_exec():
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)

    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        env=env,
        start_new_session=True,
        preexec_fn=before_exec,
    )


def send(pid, number):
    """Signals a process that may be gone."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def stop(process):
    """Ends a server as its manual says, and by force what is left of it after STOP_SECONDS."""
    send(process.pid, signal.SIGTERM)
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        for pid in tree([process.pid]):
            send(pid, signal.SIGKILL)
        process.wait()


def kill_descendants():
    """Ends by force every process that descends from this one; returns how many there were."""
    killed = 0
    me = os.getpid()
    while left := [pid for pid in tree([me]) if pid != me and descends(pid, me)]:
        for pid in left:
            if stat_or_none(pid) not in (None, "Z"):
                send(pid, signal.SIGKILL)
                killed += 1
        reap()
        time.sleep(POLL_SECONDS)
    return killed


def descends(pid, ancestor):
    """Whether a process's chain of parents leads to an ancestor."""
    while pid > 1:
        try:
            pid = int(stat(pid)[1])
        except Gone:
            return False
        if pid == ancestor:
            return True
    return False


def stat_or_none(pid):
    """A process's state letter, or None if it is gone."""
    try:
        return stat(pid)[0]
    except Gone:
        return None


def reap():
    """Collects children that have ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0] != 0:
            pass
    except ChildProcessError:
        pass


def wait_until_idle(leaders, seconds):
    """Waits until a tree has stopped working, or the time is over.

    php-fpm goes on executing what was queued for clients that have left; that belongs to no
    measurement.
    """
    deadline = time.monotonic() + seconds
    before = cpu_seconds(leaders)
    while time.monotonic() < deadline:
        time.sleep(IDLE_LOOK_SECONDS)
        now = cpu_seconds(leaders)
        if now - before < IDLE_LOOK_SECONDS * IDLE_SHARE:
            return
        before = now


def wait_until(condition, seconds, what):
    """Waits until condition() is true."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds} s for {what}")
        time.sleep(POLL_SECONDS)
