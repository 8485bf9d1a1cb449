"""A FastCGI client, as a web server is one: requests over connections that are kept or not.

Source: the FastCGI specification, version 1.0.
"""

import asyncio
import socket
import struct

BEGIN_REQUEST, END_REQUEST, PARAMS, STDIN, STDOUT = 1, 3, 4, 5, 6
RESPONDER = 1
KEEP_CONN = 1
HEADER = struct.Struct(">BBHHBx")


def record(kind, content):
    """One record of request 1."""
    return HEADER.pack(1, kind, 1, len(content), 0) + content


def length(count):
    """A length before a name or a value."""
    return bytes([count]) if count < 0x80 else struct.pack(">I", count | 0x80000000)


def request(root, path, query="", keep=False):
    """The bytes of a GET, with the parameters of nginx's fastcgi.conf."""
    target = f"{path}?{query}" if query else path
    params = {
        "SCRIPT_FILENAME": root + path, "QUERY_STRING": query, "REQUEST_METHOD": "GET",
        "CONTENT_TYPE": "", "CONTENT_LENGTH": "", "SCRIPT_NAME": path, "REQUEST_URI": target,
        "DOCUMENT_URI": path, "DOCUMENT_ROOT": root, "SERVER_PROTOCOL": "HTTP/1.1",
        "REQUEST_SCHEME": "http", "GATEWAY_INTERFACE": "CGI/1.1", "SERVER_SOFTWARE": "nginx",
        "REMOTE_ADDR": "127.0.0.1", "REMOTE_PORT": "54321", "SERVER_ADDR": "127.0.0.1",
        "SERVER_PORT": "80", "SERVER_NAME": "localhost", "REDIRECT_STATUS": "200",
        "HTTP_HOST": "localhost",
    }
    stream = b"".join(
        length(len(name)) + length(len(value)) + name.encode() + value.encode()
        for name, value in params.items()
    )
    begin = struct.pack(">HB5x", RESPONDER, KEEP_CONN if keep else 0)
    return (record(BEGIN_REQUEST, begin) + record(PARAMS, stream) + record(PARAMS, b"")
            + record(STDIN, b""))


def body_of(answer):
    """What follows the head of a CGI answer that is a success."""
    head, _, body = answer.partition(b"\r\n\r\n")
    if head.lower().startswith(b"status:") or not body:
        raise ValueError(f"no good answer: {answer[:80]!r}")
    return body


def connect(address, seconds):
    """A connection to a path or to (host, port)."""
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    connection = socket.socket(family)
    connection.settimeout(seconds)
    connection.connect(address)
    if family == socket.AF_INET:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def ask(connection, asked):
    """One request on a connection; the answer's body."""
    connection.sendall(asked)
    stdout = []
    while True:
        _, kind, _, size, padding = HEADER.unpack(exactly(connection, HEADER.size))
        content = exactly(connection, size + padding)[:size]
        if kind == STDOUT:
            stdout.append(content)
        elif kind == END_REQUEST:
            return body_of(b"".join(stdout))


def exactly(connection, count):
    """That many bytes."""
    parts = []
    while count:
        part = connection.recv(count)
        if not part:
            raise EOFError("the connection ended inside an answer")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


class Kept:
    """One connection among many."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer

    @classmethod
    async def open(cls, address):
        """Connects."""
        if isinstance(address, str):
            return cls(*await asyncio.open_unix_connection(address))
        return cls(*await asyncio.open_connection(*address))

    async def ask(self, asked):
        """As the function."""
        self.writer.write(asked)
        stdout = []
        while True:
            header = await self.reader.readexactly(HEADER.size)
            _, kind, _, size, padding = HEADER.unpack(header)
            content = (await self.reader.readexactly(size + padding))[:size]
            if kind == STDOUT:
                stdout.append(content)
            elif kind == END_REQUEST:
                return body_of(b"".join(stdout))

    def close(self):
        """Ends it."""
        self.writer.close()
