"""Asking a server: once, to see that it answers right, and many times, to see what that costs."""

import dataclasses
import json
import os
import re
import socket
import ssl
import subprocess
import tempfile
import time

import processes

WRK_SCRIPT = os.path.join(os.path.dirname(__file__), "wrk_summary.lua")
ANSWER_SECONDS = 20
IDLE_MOST_SECONDS = 20


class WrongAnswer(Exception):
    """A server did not answer as it must; measuring it would mean nothing."""


@dataclasses.dataclass(frozen=True)
class Load:
    """What is asked for, and how."""

    path: str
    connections: int
    keep_alive: bool = True
    tls: bool = False
    streams: int = 0  # of HTTP/2 on each connection at a time; 0: HTTP/1.1
    host: str = ""  # of a site that is not the first
    cookie: str = ""

    def scheme(self):
        """How a URL begins."""
        return "https" if self.tls else "http"

    def headers(self, port):
        """The request's headers."""
        lines = {"Host": self.host or f"127.0.0.1:{port}"}
        if not self.keep_alive:
            lines["Connection"] = "close"
        if self.cookie:
            lines["Cookie"] = self.cookie
        return lines


@dataclasses.dataclass(frozen=True)
class Sample:
    """One run of the load generator against one server."""

    requests: int
    seconds: float
    cpu_us: float  # of all the server's processes, per completed request
    both_us: float  # the same with the load generator's
    p50_ms: float
    p99_ms: float
    not_2xx: int
    socket_errors: int
    foreign_share: float  # of the machine's CPU time, spent by neither server nor generator

    @property
    def per_second(self):
        """Completed requests per second."""
        return self.requests / self.seconds

    @property
    def errors(self):
        """Answers that were not 2xx, and connections that failed."""
        return self.not_2xx + self.socket_errors


def connect(port, load):
    """A connection to a server; whose certificate it shows does not matter here."""
    connection = socket.create_connection(("127.0.0.1", port), ANSWER_SECONDS)
    connection.settimeout(ANSWER_SECONDS)
    if not load.tls:
        return connection
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context.wrap_socket(connection, server_hostname="localhost")


def fetch(port, load):
    """One answer: (status, headers in lower case, body, whether the server closed after it)."""
    with connect(port, load) as connection:
        head = "".join(f"{name}: {value}\r\n" for name, value in load.headers(port).items())
        connection.sendall(f"GET {load.path} HTTP/1.1\r\n{head}\r\n".encode())
        stream = connection.makefile("rb")
        status, headers = read_head(stream)
        if headers.get("transfer-encoding", "").lower() == "chunked":
            body = read_chunks(stream)
        elif "content-length" in headers:
            body = stream.read(int(headers["content-length"]))
        else:
            body = stream.read()
        closed = headers.get("connection", "").lower() == "close"
        if closed and stream.read(1) != b"":
            raise WrongAnswer(f"port {port}: bytes after the end of {load.path}")
        return status, headers, body, closed


def read_head(stream):
    """An answer's status and headers."""
    status_line = stream.readline().split()
    if len(status_line) < 2:
        raise WrongAnswer("the connection was closed without an answer")
    headers = {}
    while (line := stream.readline().strip()) != b"":
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.lower()] = value.strip()
    return int(status_line[1]), headers


def read_chunks(stream):
    """A chunked body (RFC 9112, section 7.1) without trailers."""
    body = b""
    while (size := int(stream.readline().split(b";")[0], 16)) > 0:
        body += stream.read(size)
        stream.readline()
    stream.readline()
    return body


def fetch_http2(port, load):
    """As `fetch`, over HTTP/2."""
    version = "--http2" if load.tls else "--http2-prior-knowledge"
    command = ["curl", "--silent", "--show-error", "--insecure", "--include", version,
               f"{load.scheme()}://127.0.0.1:{port}{load.path}"]
    done = subprocess.run(command, capture_output=True, timeout=ANSWER_SECONDS, check=True)
    head, _, body = done.stdout.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    version, status = lines[0].split()[:2]
    if version != "HTTP/2":
        raise WrongAnswer(f"port {port}: {load.path} was answered over {version}")
    headers = dict(line.lower().split(": ", 1) for line in lines[1:])
    return int(status), headers, body, False


def check(name, port, load, body):
    """Refuses a server whose answer is not 200 with this body, byte for byte; None is any HTML."""
    status, headers, got, closed = (fetch_http2 if load.streams else fetch)(port, load)
    if status != 200:
        raise WrongAnswer(f"{name}: {load.path} was answered with status {status}, not 200")
    if body is None:
        if not headers.get("content-type", "").startswith("text/html") or b"</html>" not in got:
            raise WrongAnswer(f"{name}: {load.path} is no whole page: {got[-100:]!r}")
    elif got != body:
        raise WrongAnswer(
            f"{name}: {load.path} has {len(got)} bytes that are not the {len(body)} expected; "
            f"it begins {got[:60]!r}"
        )
    if closed == load.keep_alive:
        wanted = "kept open" if load.keep_alive else "closed"
        raise WrongAnswer(f"{name}: the connection was not {wanted} after {load.path}")


def wrk(port, load, seconds):
    """Runs wrk with one thread and returns its summary."""
    command = ["wrk", "-t1", f"-c{load.connections}", f"-d{seconds}s", "--timeout", "10s"]
    for name, value in load.headers(port).items():
        command += ["-H", f"{name}: {value}"]
    command += ["-s", WRK_SCRIPT, f"{load.scheme()}://127.0.0.1:{port}{load.path}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 60, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def h2load(port, load, seconds):
    """Runs h2load with one thread and returns its summary, as wrk's."""
    with tempfile.NamedTemporaryFile(mode="r", prefix="h2load-") as log:
        command = ["h2load", "-t1", f"-c{load.connections}", f"-m{load.streams}", f"-D{seconds}",
                   f"--log-file={log.name}", f"{load.scheme()}://127.0.0.1:{port}{load.path}"]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=seconds + 60, check=True
        )
        lines = [line.split() for line in log]
    took = sorted(int(duration) for _, status, duration in lines if status == "200")
    found = re.search(r"^requests: .* (\d+) succeeded, (\d+) failed, (\d+) errored",
                      done.stdout, re.MULTILINE)
    succeeded, failed, errored = map(int, found.groups())
    at = lambda share: took[min(len(took) - 1, int(len(took) * share))] if took else 0
    return {
        "requests": succeeded,
        "duration_us": seconds * 1e6,
        "p50_us": at(0.5),
        "p99_us": at(0.99),
        "status_errors": failed - errored,
        "socket_errors": errored,
    }


@dataclasses.dataclass(frozen=True)
class Spent:
    """CPU time during a watch."""

    server: float  # in seconds
    generator: float  # in seconds, with that of the servers besides
    foreign_share: float  # of the machine, spent by others


class Watch:
    """CPU time from now on: a server's, and that of programs with no part in the run.

    Servers `besides` have a part in it, but their work is not the server's.
    """

    def __init__(self, leaders, besides=()):
        self.leaders = leaders
        self.besides = besides
        self.besides_before = processes.cpu_seconds(besides)
        self.generator_before = children_seconds()
        self.machine_before = processes.machine_busy_seconds()
        self.began = time.monotonic()
        self.server_before = processes.cpu_seconds(leaders)

    def read(self):
        """The CPU time since the start."""
        server = processes.cpu_seconds(self.leaders) - self.server_before
        elapsed = time.monotonic() - self.began
        machine = processes.machine_busy_seconds() - self.machine_before
        ours = children_seconds() - self.generator_before
        ours += processes.cpu_seconds(self.besides) - self.besides_before
        foreign = max(0.0, machine - server - ours) / (elapsed * os.cpu_count())
        return Spent(server, ours, foreign)


def measure(port, leaders, load, seconds, besides=()):
    """One sample: the load generator's summary, and the CPU time of the server's processes around it."""
    watch = Watch(leaders, besides)
    summary = (h2load if load.streams else wrk)(port, load, seconds)
    spent = watch.read()
    processes.wait_until_idle(leaders, IDLE_MOST_SECONDS)
    if summary["requests"] == 0:
        raise WrongAnswer(f"port {port}: {load.path} was not answered once in {seconds} s")
    return Sample(
        requests=summary["requests"],
        seconds=summary["duration_us"] / 1e6,
        cpu_us=spent.server / summary["requests"] * 1e6,
        both_us=(spent.server + spent.generator) / summary["requests"] * 1e6,
        p50_ms=summary["p50_us"] / 1e3,
        p99_ms=summary["p99_us"] / 1e3,
        not_2xx=summary["status_errors"],
        socket_errors=summary["socket_errors"],
        foreign_share=spent.foreign_share,
    )


def children_seconds():
    """CPU time of our own children that have ended: the load generator's."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
