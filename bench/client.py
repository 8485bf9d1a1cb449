"""A client that begins requests at given times, whatever has become of those before, and checks
each answer.

oha measures times better; this one knows which answer belongs to which request, and tells a refused
connection from a broken one and from a wrong answer.
"""

import asyncio
import collections
import dataclasses
import time

ANSWER_SECONDS = 60
GOOD = "good"
REFUSED = "refused"
BROKEN = "broken"
WRONG = "wrong"
UNANSWERED = "unanswered"
FAILURES = (REFUSED, BROKEN, WRONG, UNANSWERED)


@dataclasses.dataclass(frozen=True)
class Answer:
    """What became of one request."""

    fate: str
    begun: float  # time.monotonic() when it was to be sent
    seconds: float  # from then to the answer's last byte
    late: float  # how much of that passed before this client was given the CPU, in seconds
    what: str = ""  # of a failure


class Connection:
    """One connection to a server."""

    def __init__(self, port, reader, writer):
        self.port = port
        self.reader = reader
        self.writer = writer
        self.stays_open = True

    @classmethod
    async def open(cls, port):
        """Connects."""
        return cls(port, *await asyncio.open_connection("127.0.0.1", port))

    @property
    def is_usable(self):
        """Whether another request may be sent: it was not stopped."""
        return self.stays_open and not self.reader.at_eof()

    async def ask(self, path, host, keep_alive):
        """Sends a GET and returns (status, body)."""
        end = "" if keep_alive else "Connection: close\r\n"
        self.writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n{end}\r\n".encode())
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        status_line, *lines = head.strip().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines if ": " in line)
        self.stays_open = keep_alive and headers.get("connection") != "close"
        return int(status_line.split()[1]), await self.body(headers)

    async def body(self, headers):
        """An answer's body, by length, in chunks, or to the connection's end."""
        if "content-length" in headers:
            return await self.reader.readexactly(int(headers["content-length"]))
        if headers.get("transfer-encoding") != "chunked":
            self.stays_open = False
            return await self.reader.read()
        parts = []
        while size := int((await self.reader.readuntil(b"\r\n")).split(b";")[0], 16):
            parts.append((await self.reader.readexactly(size + 2))[:-2])
        await self.reader.readuntil(b"\r\n")
        return b"".join(parts)

    def close(self):
        """Ends it."""
        self.writer.close()


async def ask(port, path, is_right, begun=None, host=None, idle=None):
    """One request; `idle` is a queue of connections that are kept, or None for a new one.

    `is_right(status, body)` says whether the answer is what it must be.
    """
    now = time.monotonic()
    begun = now if begun is None else begun
    late = now - begun
    host = host or f"127.0.0.1:{port}"

    def fate(word, what=""):
        return Answer(word, begun, time.monotonic() - begun, late, what)

    connection = None
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            try:
                connection = usable(idle) or await Connection.open(port)
            except OSError as error:
                return fate(REFUSED, str(error))
            status, body = await connection.ask(path, host, idle is not None)
    except TimeoutError:
        return fate(UNANSWERED, f"in {ANSWER_SECONDS} s")
    except (OSError, EOFError, ValueError, asyncio.LimitOverrunError) as error:
        return fate(BROKEN, f"{type(error).__name__}: {error}")
    else:
        if idle is not None and connection.is_usable:
            idle.append(connection)
            connection = None
        right = is_right(status, body)
        return fate(GOOD) if right else fate(WRONG, f"status {status}, {body[:80]!r}")
    finally:
        if connection is not None:
            connection.close()


def usable(idle):
    """The connection that has been idle for longest and can be used, if there is one."""
    while idle:
        connection = idle.popleft()
        if connection.is_usable:
            return connection
        connection.close()
    return None


async def at_once(port, path, count, is_right):
    """That many requests at the same moment."""
    begun = time.monotonic()
    return await asyncio.gather(*(ask(port, path, is_right, begun) for _ in range(count)))


async def steadily(port, rate, seconds, request):
    """`rate` requests a second for `seconds`: every other one on a connection that is kept.

    `request(number)` returns the path and the check of an answer.
    """
    idle = collections.deque()
    start = time.monotonic()
    tasks = []
    for number in range(round(rate * seconds)):
        begun = start + number / rate
        await asyncio.sleep(begun - time.monotonic())
        path, is_right = request(number)
        kept = idle if number % 2 else None
        tasks.append(asyncio.create_task(ask(port, path, is_right, begun, idle=kept)))
    answers = await asyncio.gather(*tasks)
    for connection in idle:
        connection.close()
    return answers
