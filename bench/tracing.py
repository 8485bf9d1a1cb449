"""What traces cost a server, by the share of the requests that are sampled."""

import contextlib
import http.server
import statistics
import threading

import generators
import load
import managed
import report
import rows

WORKERS = 2
CONNECTIONS = 16
PAGE = load.Load("/hello.php", CONNECTIONS)
WARM_SECONDS, SECONDS = 1, 2
OFF, AGAIN, SOME, ALL = "no traces", "no traces, again", "1 % sampled", "100 % sampled"
RATIOS = {OFF: None, AGAIN: None, SOME: 0.01, ALL: 1}


class Collector:
    """A receiver of spans over OTLP/HTTP that counts them."""

    def __init__(self):
        self.spans = 0
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            """Takes what comes."""

            protocol_version = "HTTP/1.1"

            def do_POST(self):
                """Counts the spans of a request."""
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector.spans += body.count(b'"spanId"')
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_):
                """Logs nothing."""

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


def traced(url, ratio):
    """A server whose traces go to a collector."""

    class Traced(managed.Maitred):
        """maitred with traces."""

        def config(self):
            table = f'[traces]\nendpoint = "{url}"\nratio = {ratio}\n' if ratio else ""
            return super().config() + table

    return Traced


def measure(bench):
    """CPU per request of equal servers, in turn."""
    settings = {managed.WWW: {"pm": "static", "max_children": WORKERS}}
    seconds = max(SECONDS, bench.options.seconds)
    with contextlib.ExitStack() as held:
        collectors = {way: held.enter_context(Collector()) for way in RATIOS}
        servers = {
            way: held.enter_context(bench.managing(traced(collectors[way].url, ratio), settings))
            for way, ratio in RATIOS.items()
        }
        for server in servers.values():
            load.measure(server.port, server.leaders, PAGE, WARM_SECONDS)
        samples = generators.in_turn(bench, servers, lambda server: load.measure(
            server.port, server.leaders, PAGE, seconds))
        spans = {way: collector.spans for way, collector in collectors.items()}
    lines = [
        (way, report.spread(each, "cpu_us", ".1f"), report.spread(each, "per_second", ".0f"),
         str(spans[way]), str(sum(one.errors for one in each)))
        for way, each in samples.items()
    ]
    text = (
        f"hello.php from {WORKERS} workers over {CONNECTIONS} connections, {seconds} s for each server "
        f"in turn. A collector of the bench receives the spans and shares the processors. Spans that it "
        f"does not receive in time are dropped and counted by the server."
    )
    columns = ("traces", "CPU per request, µs", "requests/s", "spans received", "failed")
    return report.Section(TITLE, text, columns, lines, [
        outcome(samples, spans, way, bar)
        for way, bar in ((SOME, rows.TRACES_SOME_RATIO), (ALL, rows.TRACES_ALL_RATIO))
    ], report.samples_as_json({(way, PAGE.path): each for way, each in samples.items()}))


def outcome(samples, spans, way, bar):
    """The median of the rounds' ratios to the two servers without traces."""
    each = sorted(
        2 * one.cpu_us / (off.cpu_us + again.cpu_us)
        for one, off, again in zip(samples[way], samples[OFF], samples[AGAIN])
    )
    middle = statistics.median(each)
    return report.Outcome(
        f"{TITLE}: CPU per request, {way}", OFF, f"≤ {bar:g}", middle,
        f"{middle:.3f} ({each[0]:.3f}–{each[-1]:.3f})", middle <= bar and spans[way] > 0,
    )


TITLE = "Traces of hello.php"
MEASUREMENTS = {TITLE: measure}
