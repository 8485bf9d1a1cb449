"""maitred bench beside wrk, h2load and oha, and beside what passes over the wire; and what a script's
processor time is made of."""

import asyncio
import ctypes
import dataclasses
import json
import re
import socket
import statistics
import struct
import subprocess

import load
import managed
import peers
import report

TITLE = "maitred bench beside other generators"
CPU_TITLE = "Processor time of a script that computes 5 ms"
AGREE_RATIO = 1.05

FLAT_OUT_CONNECTIONS = 16
RATES = (500, 2000)  # of hello.php a second
SLOW_RATE, SLOW_MS = 100, 20  # of scripts that sleep
CONNECTIONS = 50
GENERATOR_SECONDS = 60

COMPUTES_MS = 5
COMPUTING = 200
CPU_RATIO = 1.03

# From <linux/if_packet.h> and <asm-generic/socket.h>.
ETH_P_ALL, PACKET_OUTGOING = 0x0003, 4
SO_ATTACH_FILTER, SO_RCVBUFFORCE, SO_TIMESTAMPNS = 26, 33, 35
CAPTURE_BYTES = 1 << 30
# Packets without a byte of HTTP are shorter: Ethernet's, IP's and TCP's heads.
WITH_CONTENT_BYTES = 80
KEPT_BYTES = 96
SOURCE_PORT_AT = 34  # in a packet without IP options
CLOSE_NS = 50_000


class Wire:
    """What passes between a port and its clients on this machine, with the kernel's own times."""

    def __init__(self, port):
        self.port = port
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        program = self.program()
        code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in program))
        attached = struct.pack("HxxxxxxP", len(program), ctypes.addressof(code))
        self.socket.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, attached)
        self.socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, CAPTURE_BYTES)
        self.socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self.socket.bind(("lo", ETH_P_ALL))

    def program(self):
        """A filter: each packet once, if it has content and comes from the port or goes there."""
        kind_of_packet = 0xFFFFF000 + 4
        return [
            (0x28, 0, 0, kind_of_packet), (0x15, 8, 0, PACKET_OUTGOING),
            (0x80, 0, 0, 0), (0x35, 0, 6, WITH_CONTENT_BYTES),
            (0x28, 0, 0, SOURCE_PORT_AT), (0x15, 3, 0, self.port),
            (0x28, 0, 0, SOURCE_PORT_AT + 2), (0x15, 1, 0, self.port),
            (0x06, 0, 0, 0), (0x06, 0, 0, KEPT_BYTES), (0x06, 0, 0, 0),
        ]

    def read(self):
        """Microseconds from each request to its answer, and the share of requests that came together."""
        self.socket.setblocking(False)
        begun, took, sent = {}, [], []
        while True:
            try:
                data, ancillary, _, _ = self.socket.recvmsg(KEPT_BYTES, 256)
            except BlockingIOError:
                break
            seconds, nanos = struct.unpack("qq", ancillary[0][2][:16])
            at = seconds * 10**9 + nanos
            source, target = struct.unpack(">HH", data[SOURCE_PORT_AT:SOURCE_PORT_AT + 4])
            if target == self.port:
                begun[source] = at
                sent.append(at)
            elif target in begun:
                took.append((at - begun.pop(target)) / 1e3)
        self.socket.close()
        sent.sort()
        together = sum(later - earlier < CLOSE_NS for earlier, later in zip(sent, sent[1:]))
        return took, together / max(1, len(sent) - 1)


@dataclasses.dataclass(frozen=True)
class Sample:
    """What one generator said of one run, and what passed over the wire meanwhile; in µs."""

    p50: float
    p90: float
    wire_p50: float
    together: float  # share of requests that came within CLOSE_NS of another


def watched(port, generator):
    """Runs a generator, which returns its p50 and p90 in µs."""
    wire = Wire(port)
    p50, p90 = generator()
    took, together = wire.read()
    return Sample(p50, p90, report.percentile(took, 0.5), together)


def run_as_json(command):
    """What a generator says, as JSON."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=GENERATOR_SECONDS,
                          check=True)
    return json.loads(done.stdout)


def ours(server, path, how):
    """Runs maitred bench."""
    url = f"http://127.0.0.1:{server.port}{path}"
    return run_as_json([server.installed(), "bench", url, *how, "--json"])


def our_times(server, path, rate, seconds):
    """p50 and p90 of an open loop, from when requests were due."""
    how = [f"--rate={rate}", f"--duration={seconds}s", "--warm-up=1s",
           f"--connections={CONNECTIONS}"]
    corrected = ours(server, path, how)["corrected"]
    return corrected["p50"] * 1e6, corrected["p90"] * 1e6


def oha_times(server, path, rate, seconds):
    """The same by oha."""
    command = [
        peers.program("oha"), "-z", f"{seconds + 1}s", "-q", str(rate), "-c", str(CONNECTIONS),
        "--latency-correction", "--disable-compression", "--no-tui", "--output-format", "json",
        f"http://127.0.0.1:{server.port}{path}",
    ]
    times = run_as_json(command)["latencyPercentiles"]
    return times["p50"] * 1e6, times["p90"] * 1e6


def our_flat_out(server, seconds):
    """Requests a second that as many users get as others have connections."""
    how = [f"--users={FLAT_OUT_CONNECTIONS}", f"--duration={seconds}s", "--warm-up=500ms"]
    return ours(server, "/hello.php", how)["requests"]["rate"]


def h2load_flat_out(server, seconds):
    """The same by h2load, over HTTP/1.1."""
    command = ["h2load", "--h1", "-t1", f"-c{FLAT_OUT_CONNECTIONS}", f"-D{seconds}",
               "--warm-up-time=500ms", f"http://127.0.0.1:{server.port}/hello.php"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=GENERATOR_SECONDS,
                          check=True)
    return float(re.search(r"^finished in [^,]*, ([\d.]+) req/s", done.stdout, re.MULTILINE)[1])


def wrk_flat_out(server, seconds):
    """The same by wrk."""
    summary = load.wrk(server.port, load.Load("/hello.php", FLAT_OUT_CONNECTIONS), seconds)
    return summary["requests"] / summary["duration_us"] * 1e6


FLAT_OUT = {"maitred bench": our_flat_out, "h2load": h2load_flat_out, "wrk": wrk_flat_out}
TIMES = {"maitred bench": our_times, "oha": oha_times}


def in_turn(bench, ways, measure):
    """{name: [figure]}: each way once a round, the first of a round the last of the next."""
    found = {name: [] for name in ways}
    for turn in range(bench.options.rounds):
        names = list(ways) if turn % 2 == 0 else list(ways)[::-1]
        for name in names:
            found[name].append(measure(ways[name]))
    return found


def agreement(title, against, ratio, measured):
    """A bar: two generators agree."""
    holds = 1 / AGREE_RATIO <= ratio <= AGREE_RATIO
    wanted = f"within {(AGREE_RATIO - 1) * 100:.0f} %"
    return report.Outcome(title, against, wanted, ratio, measured, holds)


def measure_generators(bench):
    """Throughput and times of one server by several generators."""
    seconds = max(2, bench.options.seconds)
    pools = {"www": {"pm": "static", "max_children": 8}}
    lines, outcomes, samples = [], [], {}
    with bench.managing(managed.Maitred, pools) as server:
        flat_out = in_turn(bench, FLAT_OUT, lambda way: way(server, seconds))
        loads = [("/hello.php", rate) for rate in RATES]
        loads.append((f"/sleep.php?ms={SLOW_MS}", SLOW_RATE))
        for path, rate in loads:
            samples[path, rate] = in_turn(bench, TIMES, lambda way: watched(
                server.port, lambda: way(server, path, rate, seconds)))
    for name, rates in flat_out.items():
        lines.append((f"hello.php flat out, {FLAT_OUT_CONNECTIONS} connections", name,
                      f"{statistics.median(rates):.0f}/s", "–", "–", "–"))
    ratios = [a / b for a, b in zip(flat_out["maitred bench"], flat_out["h2load"])]
    ratio = statistics.median(ratios)
    outcomes.append(agreement("hello.php flat out: requests a second by maitred bench", "h2load",
                              ratio, f"{ratio:.3f} ({min(ratios):.3f}–{max(ratios):.3f})"))
    for (path, rate), by_name in samples.items():
        for name, each in by_name.items():
            of = lambda field: statistics.median(getattr(sample, field) for sample in each)
            lines.append((f"{path}, {rate}/s", name, "–", f"{of('p50'):.0f} / {of('p90'):.0f}",
                          f"{of('wire_p50'):.0f}", f"{of('together') * 100:.0f} %"))
    slow = samples[f"/sleep.php?ms={SLOW_MS}", SLOW_RATE]
    for field in ("p50", "p90"):
        ratio = report.median(slow["maitred bench"], field) / report.median(slow["oha"], field)
        outcomes.append(agreement(f"a script that sleeps {SLOW_MS} ms, {SLOW_RATE}/s: {field}",
                                  "oha", ratio, f"{ratio:.3f}"))
    text = (
        "One maitred, asked in turn. Times are from when requests were due (oha: "
        "--latency-correction), p50 / p90 in µs. Over the wire: from a request's packet to its "
        "answer's, by the kernel's own times. Together: requests that came within 50 µs of another, "
        "though they were to come evenly. oha waits for the next tick of a clock that has one each "
        "millisecond: from 1000 requests a second on, those of a tick come together, and the second "
        "of two waits for the first. That is another load, and a slower one; and oha itself adds more "
        "to what the wire shows."
    )
    columns = ("load", "generator", "requests a second", "p50 / p90", "p50 over the wire",
               "together")
    kept = {(name, f"{path} {rate}/s"): each
            for (path, rate), by_name in samples.items() for name, each in by_name.items()}
    kept = {**report.samples_as_json(kept), "flat out": flat_out}
    return report.Section(TITLE, text, columns, lines, outcomes, kept)


@dataclasses.dataclass(frozen=True)
class Cost:
    """What one request has cost, in ms: by maitred, and by its worker's own count."""

    c: float
    r: float
    pid: int
    began: float  # what the worker had used at the script's first line
    ended: float  # and at its last


async def costs(port, at_once):
    """What scripts cost of which so many run at a time."""
    found = []

    async def one():
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"GET /own.php?ms={COMPUTES_MS} HTTP/1.0\r\n\r\n".encode())
        answer = (await reader.read()).decode("latin-1")
        writer.close()
        told = re.search(r"(?i)^server-timing: .*cpu;dur=([\d.]+), core_wait;dur=([\d.]+)", answer,
                         re.MULTILINE)
        pid, began, ended = map(int, answer.split()[-3:])
        found.append(Cost(float(told[1]), float(told[2]), pid, began / 1e3, ended / 1e3))

    for _ in range(COMPUTING // at_once):
        await asyncio.gather(*(one() for _ in range(at_once)))
    return sorted(found, key=lambda cost: (cost.pid, cost.began))


def measure_cpu_time(bench):
    """Whether C is what workers count themselves, alone and with more scripts than processors."""
    pools = {"www": {"pm": "static", "max_children": 8, "server_timing": True}}
    lines, outcomes, samples = [], [], {}
    with bench.managing(managed.Maitred, pools) as server:
        for at_once in (1, 8):
            each = asyncio.run(costs(server.port, at_once))
            samples[f"{at_once} at a time"] = [dataclasses.asdict(cost) for cost in each]
            pairs = [(a, b) for a, b in zip(each, each[1:]) if a.pid == b.pid]
            ratio = sum(b.c for _, b in pairs) / sum(b.ended - a.ended for a, b in pairs)
            figures = (
                statistics.median(cost.c for cost in each),
                statistics.median(cost.ended - cost.began for cost in each),
                statistics.median(b.began - a.ended for a, b in pairs),
                ratio, statistics.median(cost.r for cost in each),
            )
            lines.append((str(at_once), *(f"{figure:.3f}" for figure in figures)))
            outcomes.append(report.Outcome(
                f"scripts that compute {COMPUTES_MS} ms, {at_once} at a time: all of C",
                "getrusage", f"within {(CPU_RATIO - 1) * 100:.0f} %", ratio, f"{ratio:.4f}",
                1 / CPU_RATIO <= ratio <= CPU_RATIO,
            ))
    text = (
        f"A script that computes until getrusage has counted {COMPUTES_MS} ms, and says what its "
        f"process had used at its first line and at its last; medians of {COMPUTING} requests, in ms. "
        f"Between the last line of one and the first of the next is PHP's end and beginning of a "
        f"request: C has it, and no script can count it. All of C is that of a worker's requests "
        f"together, beside what the process has used from the end of its first to the end of its last."
    )
    columns = ("at a time", "C", "first line to last", "last line to first of the next",
               "all of C : getrusage", "R")
    return report.Section(CPU_TITLE, text, columns, lines, outcomes, samples)


MEASUREMENTS = {TITLE: measure_generators, CPU_TITLE: measure_cpu_time}
