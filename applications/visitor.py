"""A client for one server of several that serve the same host, and a session with cookies."""

import dataclasses
import gzip
import html.parser
import http.client
import urllib.parse

HOST = "app.test"
PORT = 80
TIMEOUT_SECONDS = 60


@dataclasses.dataclass
class Response:
    """A response as it came: the status, the headers in their order, and the body."""

    status: int
    headers: list
    body: bytes

    def header(self, name):
        """The first header of a name, or an empty text."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), "")

    @property
    def media_type(self):
        """The media type without parameters."""
        return self.header("Content-Type").partition(";")[0].strip().lower()

    @property
    def text(self):
        """The body as text."""
        return self.body.decode("utf-8", "replace")

    def decoded(self):
        """The same response without its content coding."""
        if self.header("Content-Encoding").lower() != "gzip":
            return self
        return dataclasses.replace(self, body=gzip.decompress(self.body))


class Connection(http.client.HTTPConnection):
    """A connection that sends targets as they are, those with spaces and control bytes as well."""

    def _validate_path(self, url):
        pass

    def _encode_request(self, request):
        return request.encode("latin-1")


def send(address, target, method="GET", headers=(), body=None):
    """Sends a request over a connection of its own; the status is 0 if there is no response."""
    connection = Connection(address, PORT, timeout=TIMEOUT_SECONDS)
    try:
        connection.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
        connection.putheader("Host", HOST)
        connection.putheader("User-Agent", "Mozilla/5.0 (X11; Linux x86_64) Firefox/128.0")
        connection.putheader("Connection", "close")
        for name, value in headers:
            connection.putheader(name, value)
        if body is not None:
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        answer = connection.getresponse()
        return Response(answer.status, answer.getheaders(), answer.read())
    except (http.client.HTTPException, OSError) as error:
        return Response(0, [], f"{type(error).__name__}: {error}".encode())
    finally:
        connection.close()


class Forms(html.parser.HTMLParser):
    """The forms of a page, with the values that a browser would send, and its links."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.forms, self.links, self.assets = [], [], []
        self._select, self._area = None, None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        values = {name: value or "" for name, value in attrs}
        name = values.get("name", "")
        if tag == "form":
            self.forms.append({"action": values.get("action", ""), "fields": [], **values})
        elif tag == "a" and "href" in values:
            self.links.append(values["href"])
        elif tag in ("img", "script", "iframe", "source") and values.get("src"):
            self.assets.append(values["src"])
        elif tag == "link" and values.get("href"):
            self.assets.append(values["href"])
        elif not self.forms or not name:
            pass
        elif tag == "input":
            self._input(values)
        elif tag == "select":
            self._select = name
        elif tag == "textarea":
            self._area = [name, ""]
        if tag == "option" and self._select and self.forms and "selected" in values:
            self.forms[-1]["fields"].append((self._select, values.get("value", "")))

    def _input(self, values):
        kind = values.get("type", "text").lower()
        is_sent = kind not in ("submit", "button", "image", "reset", "file")
        if kind in ("checkbox", "radio"):
            is_sent = "checked" in values
        if is_sent:
            self.forms[-1]["fields"].append((values["name"], values.get("value", "")))

    def handle_endtag(self, tag):
        if tag == "select":
            self._select = None
        elif tag == "textarea" and self._area and self.forms:
            self.forms[-1]["fields"].append((self._area[0], self._area[1].lstrip("\n")))
            self._area = None

    def handle_data(self, data):
        if self._area:
            self._area[1] += data


def multipart(fields, files):
    """The content type and the body of a form with files: (name, file name, type, bytes)."""
    boundary = "----------------applications7d1f"
    parts = []
    for name, value in fields:
        parts.append(f'Content-Disposition: form-data; name="{name}"\r\n\r\n{value}'.encode())
    for name, file_name, media_type, content in files:
        disposition = f'Content-Disposition: form-data; name="{name}"; filename="{file_name}"'
        head = f"{disposition}\r\nContent-Type: {media_type}\r\n\r\n"
        parts.append(head.encode() + content)
    joined = b"".join(b"--%s\r\n%s\r\n" % (boundary.encode(), part) for part in parts)
    body = joined + f"--{boundary}--\r\n".encode()
    return f"multipart/form-data; boundary={boundary}", body


class Session:
    """A browser of a kind: it has cookies, follows nothing by itself, and records each step."""

    def __init__(self, address):
        self.address = address
        self.cookies = {}
        self.steps = []
        self.at = "/"

    def request(self, target, method="GET", headers=(), body=None):
        """Sends a request of this session, whose target may be a URL of a page, and records it."""
        target = self.resolve(target)
        headers = list(headers)
        if self.cookies:
            pairs = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
            headers.append(("Cookie", pairs))
        response = send(self.address, target, method, headers, body)
        self._take_cookies(response)
        self.at = target
        self.steps.append((f"{method} {target}", response))
        return response

    def resolve(self, target):
        """The target of a URL that stands on the current page."""
        joined = urllib.parse.urljoin(f"http://{HOST}{self.at}", target)
        split = urllib.parse.urlsplit(joined)
        return urllib.parse.urlunsplit(("", "", split.path or "/", split.query, ""))

    def _take_cookies(self, response):
        for name, value in response.headers:
            if name.lower() != "set-cookie":
                continue
            pair, *attributes = value.split(";")
            key, _, content = pair.partition("=")
            is_over = any("max-age=0" in each.lower() for each in attributes)
            if is_over or content.strip() in ("", "deleted"):
                self.cookies.pop(key.strip(), None)
            else:
                self.cookies[key.strip()] = content.strip()

    def get(self, target, headers=()):
        """GET, and redirects are followed."""
        return self._follow(self.request(target, headers=headers))

    def post(self, target, fields, files=()):
        """POST of a form, and redirects are followed."""
        if files:
            media_type, body = multipart(fields, files)
        else:
            media_type = "application/x-www-form-urlencoded"
            body = urllib.parse.urlencode(fields).encode()
        headers = [("Content-Type", media_type), ("Origin", f"http://{HOST}")]
        headers.append(("Referer", f"http://{HOST}{self.at}"))
        return self._follow(self.request(target, "POST", headers, body))

    def _follow(self, response):
        for _ in range(8):
            location = response.header("Location")
            if response.status not in (301, 302, 303, 307) or not location:
                break
            response = self.request(location)
        return response

    def submit(self, page, changes, files=(), form=None):
        """Fills in a form of a page, by the name of one of its fields, and sends it."""
        found = Forms(page.text).forms
        wanted = form or next(iter(changes))
        chosen = [
            each
            for each in found
            if wanted in each.get("id", "")
            or any(name == wanted for name, _ in each["fields"])
            or wanted == each.get("name")
        ]
        if not chosen:
            self.steps.append((f"no form with {wanted} at {self.at}", page))
            return page
        fields = [(name, value) for name, value in chosen[0]["fields"] if name not in changes]
        fields += [(name, value) for name, value in changes.items() if value is not None]
        return self.post(chosen[0]["action"] or self.at, fields, files)
