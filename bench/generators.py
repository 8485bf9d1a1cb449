"""maitred bench beside wrk, h2load and oha, and beside what passes over the wire."""

import ctypes
import dataclasses
import json
import socket
import statistics
import struct
import subprocess

import load
import managed
import peers
import report

TITLE = "maitred bench beside other generators"
AGREE_RATIO = 1.05

RATES = (500, 2000)  # of hello.php a second
SLOW_RATE, SLOW_MS = 100, 20  # of scripts that sleep
CONNECTIONS = 50
GENERATOR_SECONDS = 60

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
    """Times of one server by several generators."""
    seconds = max(2, bench.options.seconds)
    pools = {"www": {"pm": "static", "max_children": 8}}
    lines, outcomes, samples = [], [], {}
    with bench.managing(managed.Maitred, pools) as server:
        loads = [("/hello.php", rate) for rate in RATES]
        loads.append((f"/sleep.php?ms={SLOW_MS}", SLOW_RATE))
        for path, rate in loads:
            samples[path, rate] = in_turn(bench, TIMES, lambda way: watched(
                server.port, lambda: way(server, path, rate, seconds)))
    for (path, rate), by_name in samples.items():
        for name, each in by_name.items():
            of = lambda field: statistics.median(getattr(sample, field) for sample in each)
            lines.append((f"{path}, {rate}/s", name, f"{of('p50'):.0f} / {of('p90'):.0f}",
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
    columns = ("load", "generator", "p50 / p90", "p50 over the wire", "together")
    kept = {(name, f"{path} {rate}/s"): each
            for (path, rate), by_name in samples.items() for name, each in by_name.items()}
    return report.Section(TITLE, text, columns, lines, outcomes, report.samples_as_json(kept))


MEASUREMENTS = {TITLE: measure_generators}
