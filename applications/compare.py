"""Decides whether a response of maitred is a peer's, apart from what varies by itself.

A peer's response is compared with a second one to the same request: what differs between these two
varies by itself (tokens, times, orders), and is left out of the comparison with maitred's.
"""

import dataclasses
import re

# About the server or the connection, not the response: docs/guide/differences.md has each.
UNCOMPARED = {
    "date": "time",
    "server": "the server's name",
    "connection": "framing",
    "keep-alive": "framing",
    "transfer-encoding": "framing",
    "content-length": "framing",
    "accept-ranges": "said by maitred and Apache for files, by nginx as well; not for scripts",
}
# The tags of files are made by each server's own formula; scripts' tags are compared.
FILE_TAG = re.compile(r'^(W/)?"[0-9a-f]+(-[0-9a-f]+)*(-gzip)?"$')
TOKENS = re.compile(rb"[A-Za-z0-9+/=_%.,:-]+|.", re.DOTALL)
# Pages that a server writes itself begin so.
OWN_PAGES = (
    b"<html>\r\n<head><title>",
    b'<!DOCTYPE HTML PUBLIC "-//IETF//DTD HTML 2.0//EN">',
    b'<!DOCTYPE HTML PUBLIC "-//W3C//DTD HTML 4.01//EN" "http://www.w3.org/TR/html4/strict.dtd">',
)
# What applications show of the server and of its speed: SERVER_SOFTWARE, SERVER_ADDR,
# php_sapi_name(), durations.
ABOUT_SERVER = re.compile(
    rb"maitred/[0-9.]+ \(as [A-Za-z]+\)|nginx/[0-9.]+|Apache/[0-9.]+ \([A-Za-z]+\)"
    rb"|127\.0\.0\.[123]|[0-9]+\.[0-9]+(?= ?s\b| seconds)|Load: [0-9.]+"
    rb"|[0-9]+ (seconds?|mins?) ago|(?<=time\":\")[0-9.]+|apache2handler|fpm-fcgi"
    rb"|[0-3](?=\.gravatar)"
    # Counted after the response.
    rb"|(?<=wgUserEditCount\":)[0-9]+"
)
OWN_TYPE = "text/plain; charset=utf-8"
CHARSET = re.compile(r"; ?charset=utf-8$", re.IGNORECASE)
# What maitred says of a file, and nginx or Apache: docs/guide/differences.md.
NEWER_TYPES = {
    ("text/javascript", "application/javascript"),
    ("text/javascript", "application/x-javascript"),
    ("image/x-icon", "image/vnd.microsoft.icon"),
    ("text/xml", "application/xml"),
    ("text/xml", "application/xslt+xml"),
    ("text/xml", "application/octet-stream"),
    ("application/x-sql", "application/octet-stream"),
    ("application/x-sql", "application/sql"),
    ("text/markdown", "application/octet-stream"),
    ("application/octet-stream", ""),
}
TEXT_TYPES = re.compile(r"^(text/|application/(javascript|json|xml|.*\+xml)|image/svg)")


@dataclasses.dataclass
class Pair:
    """Two responses of the peer to one request, and maitred's."""

    peer: object
    again: object
    own: object

    def bodies(self):
        """The three bodies."""
        return self.peer.body, self.again.body, self.own.body


def compare(pair, request=""):
    """What differs, as texts; an empty list if nothing does."""
    if pair.peer.status != pair.again.status:
        return []
    if pair.peer.status != pair.own.status:
        if is_named_status(pair, request):
            return []
        return [f"status {pair.own.status}, peer {pair.peer.status}"]
    if is_front_controllers(pair, request) or is_hidden(pair, request):
        return []
    found = compare_headers(pair)
    return found if is_own_page(pair) else found + compare_bodies(pair)


def is_named_status(pair, request):
    """Whether docs/guide/differences.md or from-apache.md has a difference of the status."""
    statuses = (pair.own.status, pair.peer.status)
    if statuses == (200, 404) and pair.peer.header("Server").startswith("nginx"):
        # try_files without $uri/ has no index files.
        return request.partition("?")[0].endswith("/")
    if statuses == (404, 403):
        # A folder without an index file, and hidden files.
        return request.partition("?")[0].endswith("/") or "/.ht" in request or "/.git" in request
    if pair.own.status == 404 and re.search(r"(?i)%2f|\.php[^/]+$", request.partition("?")[0]):
        # An encoded slash is no separator, and PHP's source is not sent under other names.
        return True
    if pair.peer.status == 404 and is_front_controllers(pair, request):
        return True
    if pair.own.status == 400:
        # A NUL, and a space in the request line.
        return "%00" in request or request.endswith(" ")
    # Apache serves ranges of scripts' responses as well.
    return (
        request.startswith("Range ") and pair.own.status == 200 and pair.peer.status in (206, 416)
    )


def is_front_controllers(pair, request):
    """Whether maitred's front controller has a path of a script that does not exist."""
    path = request.partition("?")[0]
    return pair.peer.status == 404 and is_own_page(pair) and path.endswith(".php")


def is_hidden(pair, request):
    """Whether maitred refuses a hidden file that the peer passes to the front controller."""
    is_refusal = pair.own.status == 404 and pair.own.header("Content-Type") == OWN_TYPE
    return is_refusal and re.search(r"(?i)/(\.|%2e)[a-z]", request) is not None


def is_own_page(pair):
    """Whether the peer has written the page itself; to HEAD, the type of maitred's pages tells."""
    if pair.peer.status < 300:
        return False
    if pair.peer.body:
        return pair.peer.body.lstrip().startswith(OWN_PAGES)
    return pair.own.header("Content-Type") == OWN_TYPE


def header_lines(response):
    """The headers that are compared, as {name: sorted values}."""
    lines = {}
    for name, value in response.headers:
        lowered = name.lower()
        if lowered == "vary":
            # What a server's own compression adds.
            value = ", ".join(
                each for each in re.split(r"[\s,]+", value) if each.lower() != "accept-encoding"
            )
        if lowered not in UNCOMPARED and value:
            lines.setdefault(lowered, []).append(value)
    if "set-cookie" in lines:
        # Under mod_php, a cookie that PHP has replaced is sent as well: the last one counts.
        named = {value.partition("=")[0]: value for value in lines["set-cookie"]}
        lines["set-cookie"] = list(named.values())
    return {name: sorted(values) for name, values in lines.items()}


def compare_headers(pair):
    """The headers that differ."""
    peer, again, own = (header_lines(each) for each in (pair.peer, pair.again, pair.own))
    is_own = is_own_page(pair)
    found = []
    for name in sorted(set(peer) | set(own)):
        one, two, three = peer.get(name), again.get(name), own.get(name)
        if one == three or two == three or is_named(name, one, three, pair.own.status):
            continue
        if is_own and name in ("content-type", "content-encoding", "content-range"):
            continue
        if varies_equally(one, two, three):
            continue
        found.append(f"{name}: {three}, peer {one}")
    return found


def varies_equally(one, two, three):
    """Whether the values of a header differ only where the peer's two do."""
    if not (one and two and three and len(one) == len(two) == len(three)):
        return False
    lines = zip(*([value.encode() for value in each] for each in (one, two, three)))
    return all(same_line(*line) for line in lines)


def is_named(name, peer, own, status):
    """Whether docs/guide/differences.md has a difference of headers."""
    if name == "content-type" and own:
        # Files of text are sent with their character set, and some types are newer.
        bare = CHARSET.sub("", own[0])
        one = peer[0] if peer else ""
        if status == 204:
            return True  # Apache leaves it out
        return (bare == one and TEXT_TYPES.match(one) is not None) or (bare, one) in NEWER_TYPES
    if name == "etag":
        tags = (peer or []) + (own or [])
        return all(FILE_TAG.match(tag) for tag in tags)
    if name == "location" and peer and own:
        return peer[0].endswith(own[0]) and own[0].endswith("/") and own[0].startswith("/")
    return False


def compare_bodies(pair):
    """Where the bodies differ."""
    if pair.own.body in (pair.peer.body, pair.again.body):
        return []
    lines = [body.split(b"\n") for body in pair.bodies()]
    peer, again, own = lines
    if len(peer) != len(again):
        return compare_unsteady(pair)
    if len(peer) != len(own):
        return [f"body of {len(own)} lines, peer {len(peer)}: {first_difference(peer, own)}"]
    for one, two, three in zip(peer, again, own):
        if not same_line(one, two, three):
            return [f"body: {show_varying(one, two, three)}"]
    return []


def same_line(one, two, three):
    """Whether a line is the peer's apart from what differs between the peer's two."""
    one, two, three = (ABOUT_SERVER.sub(b"SERVER", line) for line in (one, two, three))
    if three in (one, two):
        return True
    if one == two:
        return False
    first, second, third = (TOKENS.findall(line) for line in (one, two, three))
    if not len(first) == len(second) == len(third):
        return len(first) != len(second)
    return all(c in (a, b) or a != b for a, b, c in zip(first, second, third))


def compare_unsteady(pair):
    """Bodies whose number of lines varies: the words that are in both of the peer's are compared."""
    words = [set(re.findall(rb"[A-Za-z]{3,}", body)) for body in pair.bodies()]
    missing = (words[0] & words[1]) - words[2]
    added = words[2] - (words[0] | words[1])
    if len(missing) + len(added) > 0:
        return [f"body: without {sorted(missing)[:8]}, with {sorted(added)[:8]}"]
    return []


def first_difference(peer, own):
    """The first lines that differ, shortened."""
    for one, three in zip(peer, own):
        if one != three:
            return show(one, three)
    longer = own if len(own) > len(peer) else peer
    return show(b"", longer[min(len(peer), len(own))])


def show_varying(one, two, three):
    """Two lines from their first words that differ and do not vary by themselves."""
    first, second, third = (TOKENS.findall(line) for line in (one, two, three))
    if len(first) == len(second) == len(third):
        for place, (a, b, c) in enumerate(zip(first, second, third)):
            if a == b != c:
                near = slice(max(0, place - 12), place + 8)
                return f"{b''.join(third[near])!r}, peer {b''.join(first[near])!r}"
    return show(one, three)


def show(one, three):
    """Two lines from where they part."""
    place = next(
        (i for i, (a, b) in enumerate(zip(one, three)) if a != b), min(len(one), len(three))
    )
    start = max(0, place - 30)
    return f"{three[start:place + 70]!r}, peer {one[start:place + 70]!r}"
