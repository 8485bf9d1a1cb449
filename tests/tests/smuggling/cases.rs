//! Doubtful requests of HTTP/1, and what maitred makes of them.

/// A request that two servers may read differently, or that looks like one.
#[derive(Debug)]
pub struct Case {
    /// What is odd about it.
    pub name: &'static str,
    /// Its bytes. A whole request follows them on the connection.
    pub bytes: &'static [u8],
    /// What maitred does.
    pub wanted: Wanted,
}

/// What maitred does with a request.
#[derive(Debug, Clone, Copy)]
pub enum Wanted {
    /// It refuses it with this status and closes the connection.
    Refused(u16),
    /// It understands it: the statuses, and what the script sees.
    Understood(&'static str),
}

use Wanted::{Refused, Understood};

/// The table.
#[rustfmt::skip]
pub const CASES: &[Case] = &[
    Case { name: "`Content-Length: 3`",
        bytes: b"POST /echo.php HTTP/1.1\r\nHost: a.example\r\nContent-Length: 3\r\n\r\nabc",
        wanted: Understood("200 `POST /echo.php a.example \"abc\"` 200 `GET /echo.php?hidden \
                            a.example \"\"`") },
    Case { name: "`Content-Length: 3` twice",
        bytes: b"POST /echo.php HTTP/1.1\r\nHost: a.example\r\nContent-Length: 3\r\n\
                 Content-Length: 3\r\n\r\nabc",
        wanted: Refused(400) },
    Case { name: "`Content-Length: 3`, then `4`",
        bytes: b"POST /echo.php HTTP/1.1\r\nHost: a.example\r\nContent-Length: 3\r\n\
                 Content-Length: 4\r\n\r\nabcd",
        wanted: Refused(400) },
    Case { name: "`Content-Length: 3, 3`",
        bytes: b"POST /echo.php HTTP/1.1\r\nHost: a.example\r\nContent-Length: 3, 3\r\n\r\nabc",
        wanted: Refused(400) },
    Case { name: "`Content-Length: 3, 4`",
        bytes: b"POST /echo.php HTTP/1.1\r\nHost: a.example\r\nContent-Length: 3, 4\r\n\r\nabc",
        wanted: Refused(400) },
    Case { name: "`Content-Length: +3`",
        bytes: b"POST /echo.php HTTP/1.1\r\nHost: a.example\r\nContent-Length: +3\r\n\r\nabc",
        wanted: Refused(400) },
    Case { name: "`Content-Length: -3`",
        bytes: b"POST /echo.php HTTP/1.1\r\nHost: a.example\r\nContent-Length: -3\r\n\r\nabc",
        wanted: Refused(400) },
    Case { name: "`Content-Length: 0x3`",
        bytes: b"POST /echo.php HTTP/1.1\r\nHost: a.example\r\nContent-Length: 0x3\r\n\r\nabc",
        wanted: Refused(400) },
    Case { name: "`Content-Length: 003`",
        bytes: b"POST /echo.php HTTP/1.1\r\nHost: a.example\r\nContent-Length: 003\r\n\r\nabc",
        wanted: Understood("200 `POST /echo.php a.example \"abc\"` 200 `GET /echo.php?hidden \
                            a.example \"\"`") },
    Case { name: "`Content-Length: 3 4`",
        bytes: b"POST /echo.php HTTP/1.1\r\nHost: a.example\r\nContent-Length: 3 4\r\n\r\nabc",
        wanted: Refused(400) },
    Case { name: "`Content-Length: 3.0`",
        bytes: b"POST /echo.php HTTP/1.1\r\nHost: a.example\r\nContent-Length: 3.0\r\n\r\nabc",
        wanted: Refused(400) },
    Case { name: "`Content-Length: 3;`",
        bytes: b"POST /echo.php HTTP/1.1\r\nHost: a.example\r\nContent-Length: 3;\r\n\r\nabc",
        wanted: Refused(400) },
    Case { name: "`Content-Length:` without a value",
        bytes: b"POST /echo.php HTTP/1.1\r\nHost: a.example\r\nContent-Length:\r\n\r\nabc",
        wanted: Refused(400) },
    Case { name: "`Content-Length: \\v3` (a vertical tab)",
        bytes: b"POST /echo.php HTTP/1.1\r\nHost: a.example\r\nContent-Length: \x0b3\r\n\r\nabc",
        wanted: Refused(400) },
    Case { name: "`Content-Length: 99999999999999999999`",
        bytes: b"POST /echo.php HTTP/1.1\r\nHost: a.example\r\nContent-Length: \
                 99999999999999999999\r\n\r\nabc",
        wanted: Refused(400) },
    Case { name: "`Content-Length : 3`",
        bytes: b"POST /echo.php HTTP/1.1\r\nHost: a.example\r\nContent-Length : 3\r\n\r\nabc",
        wanted: Refused(400) },
    Case { name: "`Content-Length:` and ` 3` on a line of its own",
        bytes: b"POST /echo.php HTTP/1.1\r\nHost: a.example\r\nContent-Length:\r\n 3\r\n\r\nabc",
        wanted: Refused(400) },
    Case { name: "`Transfer-Encoding: chunked`",
        bytes: b"POST /echo.php HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n\
                 3\r\nabc\r\n0\r\n\r\n",
        wanted: Understood("200 `POST /echo.php a.example \"abc\"` 200 `GET /echo.php?hidden \
                            a.example \"\"`") },
    Case { name: "`Transfer-Encoding: CHUNKED`",
        bytes: b"POST /echo.php HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: CHUNKED\r\n\r\n\
                 3\r\nabc\r\n0\r\n\r\n",
        wanted: Understood("200 `POST /echo.php a.example \"abc\"` 200 `GET /echo.php?hidden \
                            a.example \"\"`") },
    Case { name: "CL.TE: `Content-Length: 6`, `Transfer-Encoding: chunked`",
        bytes: b"POST /echo.php HTTP/1.1\r\nHost: a.example\r\nContent-Length: 6\r\n\
                 Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nX",
        wanted: Refused(400) },
    Case { name: "TE.CL: `Transfer-Encoding: chunked`, `Content-Length: 4`",
        bytes: b"POST /echo.php HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\
                 Content-Length: 4\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        wanted: Refused(400) },
    Case { name: "TE.TE: `chunked`, then `identity`",
        bytes: b"POST /echo.php HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\
                 Transfer-Encoding: identity\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        wanted: Refused(501) },
    Case { name: "TE.TE: `chunked`, then `x`",
        bytes: b"POST /echo.php HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\
                 Transfer-Encoding: x\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        wanted: Refused(501) },
    Case { name: "TE.TE: `chunked` twice",
        bytes: b"POST /echo.php HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\
                 Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        wanted: Refused(400) },
    Case { name: "`Transfer-Encoding: chunked, chunked`",
        bytes: b"POST /echo.php HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked, \
                 chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        wanted: Refused(400) },
    Case { name: "`Transfer-Encoding: chunked, identity`",
        bytes: b"POST /echo.php HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked, \
                 identity\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        wanted: Refused(501) },
    Case { name: "`Transfer-Encoding: gzip, chunked`",
        bytes: b"POST /echo.php HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: gzip, chunked\r\n\
                 \r\n3\r\nabc\r\n0\r\n\r\n",
        wanted: Refused(501) },
    Case { name: "`Transfer-Encoding: identity`",
        bytes: b"POST /echo.php HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: identity\r\n\r\n\
                 3\r\nabc\r\n0\r\n\r\n",
        wanted: Refused(501) },
    Case { name: "`Transfer-Encoding: xchunked`",
        bytes: b"POST /echo.php HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: xchunked\r\n\r\n\
                 3\r\nabc\r\n0\r\n\r\n",
        wanted: Refused(501) },
    Case { name: "`Transfer-Encoding: chunked;q=1`",
        bytes: b"POST /echo.php HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked;q=1\r\n\
                 \r\n3\r\nabc\r\n0\r\n\r\n",
        wanted: Refused(501) },
    Case { name: "`Transfer-Encoding: \"chunked\"`",
        bytes: b"POST /echo.php HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: \"chunked\"\r\n\
                 \r\n3\r\nabc\r\n0\r\n\r\n",
        wanted: Refused(501) },
    Case { name: "`Transfer-Encoding:` without a value",
        bytes: b"POST /echo.php HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding:\r\n\r\n3\r\n\
                 abc\r\n0\r\n\r\n",
        wanted: Refused(400) },
    Case { name: "`Transfer-Encoding: \\vchunked` (a vertical tab)",
        bytes: b"POST /echo.php HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: \x0bchunked\r\n\
                 \r\n3\r\nabc\r\n0\r\n\r\n",
        wanted: Refused(400) },
    Case { name: "`Transfer-Encoding: chunked\\0`",
        bytes: b"POST /echo.php HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\0\r\n\r\n\
                 3\r\nabc\r\n0\r\n\r\n",
        wanted: Refused(400) },
    Case { name: "`Transfer-Encoding : chunked`",
        bytes: b"POST /echo.php HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding : chunked\r\n\r\n\
                 3\r\nabc\r\n0\r\n\r\n",
        wanted: Refused(400) },
    Case { name: "`Transfer-Encoding\\t: chunked`",
        bytes: b"POST /echo.php HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding\t: chunked\r\n\r\n\
                 3\r\nabc\r\n0\r\n\r\n",
        wanted: Refused(400) },
    Case { name: "` Transfer-Encoding: chunked` (a line that starts with a space)",
        bytes: b"POST /echo.php HTTP/1.1\r\nHost: a.example\r\n Transfer-Encoding: chunked\r\n\r\n\
                 3\r\nabc\r\n0\r\n\r\n",
        wanted: Refused(400) },
    Case { name: "`Transfer-Encoding:` and ` chunked` on a line of its own",
        bytes: b"POST /echo.php HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding:\r\n chunked\r\n\
                 \r\n3\r\nabc\r\n0\r\n\r\n",
        wanted: Refused(400) },
    Case { name: "`X: y\\nTransfer-Encoding: chunked` (a bare LF)",
        bytes: b"POST /echo.php HTTP/1.1\r\nHost: a.example\r\nX: y\nTransfer-Encoding: chunked\r\n\
                 \r\n3\r\nabc\r\n0\r\n\r\n",
        wanted: Refused(400) },
    Case { name: "`X: y\\rTransfer-Encoding: chunked` (a bare CR)",
        bytes: b"POST /echo.php HTTP/1.1\r\nHost: a.example\r\nX: y\rTransfer-Encoding: chunked\r\n\
                 \r\n3\r\nabc\r\n0\r\n\r\n",
        wanted: Refused(400) },
    Case { name: "`Transfer-Encoding: chunked` over HTTP/1.0",
        bytes: b"POST /echo.php HTTP/1.0\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n\
                 3\r\nabc\r\n0\r\n\r\n",
        wanted: Refused(400) },
    Case { name: "chunk `3;a=b`",
        bytes: b"POST /echo.php HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n\
                 3;a=b\r\nabc\r\n0\r\n\r\n",
        wanted: Understood("200 `POST /echo.php a.example \"abc\"` 200 `GET /echo.php?hidden \
                            a.example \"\"`") },
    Case { name: "chunk `3;a=\"b;c\"`",
        bytes: b"POST /echo.php HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n\
                 3;a=\"b;c\"\r\nabc\r\n0\r\n\r\n",
        wanted: Understood("200 `POST /echo.php a.example \"abc\"` 200 `GET /echo.php?hidden \
                            a.example \"\"`") },
    Case { name: "chunk `3;a\\nb` (a bare LF in an extension)",
        bytes: b"POST /echo.php HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n\
                 3;a\nb\r\nabc\r\n0\r\n\r\n",
        wanted: Refused(400) },
    Case { name: "chunk `3;a\\rb` (a bare CR in an extension)",
        bytes: b"POST /echo.php HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n\
                 3;a\rb\r\nabc\r\n0\r\n\r\n",
        wanted: Refused(400) },
    Case { name: "chunk `3;a\\0b`",
        bytes: b"POST /echo.php HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n\
                 3;a\0b\r\nabc\r\n0\r\n\r\n",
        wanted: Refused(400) },
    Case { name: "chunk `0x3`",
        bytes: b"POST /echo.php HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n\
                 0x3\r\nabc\r\n0\r\n\r\n",
        wanted: Refused(400) },
    Case { name: "chunk `+3`",
        bytes: b"POST /echo.php HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n\
                 +3\r\nabc\r\n0\r\n\r\n",
        wanted: Refused(400) },
    Case { name: "chunk `-3`",
        bytes: b"POST /echo.php HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n\
                 -3\r\nabc\r\n0\r\n\r\n",
        wanted: Refused(400) },
    Case { name: "chunk `3 ` (a space after it)",
        bytes: b"POST /echo.php HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n\
                 3 \r\nabc\r\n0\r\n\r\n",
        wanted: Refused(400) },
    Case { name: "chunk ` 3` (a space before it)",
        bytes: b"POST /echo.php HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\
                 \r\n 3\r\nabc\r\n0\r\n\r\n",
        wanted: Refused(400) },
    Case { name: "chunk `3_0`",
        bytes: b"POST /echo.php HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n\
                 3_0\r\nabc\r\n0\r\n\r\n",
        wanted: Refused(400) },
    Case { name: "chunk `003`",
        bytes: b"POST /echo.php HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n\
                 003\r\nabc\r\n0\r\n\r\n",
        wanted: Understood("200 `POST /echo.php a.example \"abc\"` 200 `GET /echo.php?hidden \
                            a.example \"\"`") },
    Case { name: "chunk `00000000000000003` (17 digits)",
        bytes: b"POST /echo.php HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n\
                 00000000000000003\r\nabc\r\n0\r\n\r\n",
        wanted: Refused(400) },
    Case { name: "chunk `10000000000000003` (2^64 + 3)",
        bytes: b"POST /echo.php HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n\
                 10000000000000003\r\nabc\r\n0\r\n\r\n",
        wanted: Refused(400) },
    Case { name: "chunk without a size",
        bytes: b"POST /echo.php HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n\
                 \r\nabc\r\n0\r\n\r\n",
        wanted: Refused(400) },
    Case { name: "chunk size that ends in a bare LF",
        bytes: b"POST /echo.php HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n\
                 3\nabc\r\n0\r\n\r\n",
        wanted: Refused(400) },
    Case { name: "chunk data that ends in a bare LF",
        bytes: b"POST /echo.php HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n\
                 3\r\nabc\n0\r\n\r\n",
        wanted: Refused(400) },
    Case { name: "chunk data that is longer than its size",
        bytes: b"POST /echo.php HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n\
                 3\r\nabcd\r\n0\r\n\r\n",
        wanted: Refused(400) },
    Case { name: "last chunk that ends in bare LFs",
        bytes: b"POST /echo.php HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n\
                 3\r\nabc\r\n0\n\n",
        wanted: Refused(400) },
    Case { name: "trailer `Content-Length: 9`",
        bytes: b"POST /echo.php HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n\
                 3\r\nabc\r\n0\r\nContent-Length: 9\r\n\r\n",
        wanted: Understood("200 `POST /echo.php a.example \"abc\"` 200 `GET /echo.php?hidden \
                            a.example \"\"`") },
    Case { name: "trailer without a colon",
        bytes: b"POST /echo.php HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n\
                 3\r\nabc\r\n0\r\ntrailer\r\n\r\n",
        wanted: Refused(400) },
    Case { name: "trailer ` folded: line`",
        bytes: b"POST /echo.php HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n\
                 3\r\nabc\r\n0\r\n folded: line\r\n\r\n",
        wanted: Refused(400) },
    Case { name: "an empty line before the request",
        bytes: b"\r\nGET /echo.php HTTP/1.1\r\nHost: a.example\r\n\r\n",
        wanted: Understood("200 `GET /echo.php a.example \"\"` 200 `GET /echo.php?hidden a.example \
                            \"\"`") },
    Case { name: "lines that end in bare LFs",
        bytes: b"GET /echo.php HTTP/1.1\nHost: a.example\n\n",
        wanted: Refused(400) },
    Case { name: "a space before the request line",
        bytes: b" GET /echo.php HTTP/1.1\r\nHost: a.example\r\n\r\n",
        wanted: Refused(400) },
    Case { name: "two spaces before the target",
        bytes: b"GET  /echo.php HTTP/1.1\r\nHost: a.example\r\n\r\n",
        wanted: Refused(400) },
    Case { name: "a tab in the request line",
        bytes: b"GET\t/echo.php HTTP/1.1\r\nHost: a.example\r\n\r\n",
        wanted: Refused(400) },
    Case { name: "a target with a space",
        bytes: b"GET /echo.php HTTP/1.1 HTTP/1.1\r\nHost: a.example\r\n\r\n",
        wanted: Refused(400) },
    Case { name: "a target with a NUL",
        bytes: b"GET /echo.php\0x HTTP/1.1\r\nHost: a.example\r\n\r\n",
        wanted: Refused(400) },
    Case { name: "a target with a fragment",
        bytes: b"GET /echo.php#x HTTP/1.1\r\nHost: a.example\r\n\r\n",
        wanted: Refused(400) },
    Case { name: "a method with a NUL",
        bytes: b"G\0T /echo.php HTTP/1.1\r\nHost: a.example\r\n\r\n",
        wanted: Refused(400) },
    Case { name: "`http/1.1` in lower case",
        bytes: b"GET /echo.php http/1.1\r\nHost: a.example\r\n\r\n",
        wanted: Refused(400) },
    Case { name: "`HTTP/1.2`",
        bytes: b"GET /echo.php HTTP/1.2\r\nHost: a.example\r\n\r\n",
        wanted: Refused(505) },
    Case { name: "`HTTP/2.0`",
        bytes: b"GET /echo.php HTTP/2.0\r\nHost: a.example\r\n\r\n",
        wanted: Refused(505) },
    Case { name: "`HTTP/0.9`",
        bytes: b"GET /echo.php HTTP/0.9\r\nHost: a.example\r\n\r\n",
        wanted: Refused(505) },
    Case { name: "an HTTP/0.9 request (no version)",
        bytes: b"GET /echo.php\r\n",
        wanted: Refused(400) },
    Case { name: "a header without a colon",
        bytes: b"GET /echo.php HTTP/1.1\r\nHost: a.example\r\nX\r\n\r\n",
        wanted: Refused(400) },
    Case { name: "a header without a name",
        bytes: b"GET /echo.php HTTP/1.1\r\nHost: a.example\r\n: x\r\n\r\n",
        wanted: Refused(400) },
    Case { name: "a space in a name",
        bytes: b"GET /echo.php HTTP/1.1\r\nHost: a.example\r\nX Y: z\r\n\r\n",
        wanted: Refused(400) },
    Case { name: "a NUL in a name",
        bytes: b"GET /echo.php HTTP/1.1\r\nHost: a.example\r\nX\0Y: z\r\n\r\n",
        wanted: Refused(400) },
    Case { name: "a NUL in a value",
        bytes: b"GET /echo.php HTTP/1.1\r\nHost: a.example\r\nX: y\0z\r\n\r\n",
        wanted: Refused(400) },
    Case { name: "a bare CR in a value",
        bytes: b"GET /echo.php HTTP/1.1\r\nHost: a.example\r\nX: y\rz\r\n\r\n",
        wanted: Refused(400) },
    Case { name: "a folded value (obs-fold)",
        bytes: b"GET /echo.php HTTP/1.1\r\nHost: a.example\r\nX: y\r\n z\r\n\r\n",
        wanted: Refused(400) },
    Case { name: "a folded first header",
        bytes: b"GET /echo.php HTTP/1.1\r\n X: y\r\nHost: a.example\r\n\r\n",
        wanted: Refused(400) },
    Case { name: "no `Host`",
        bytes: b"GET /echo.php HTTP/1.1\r\nX: y\r\n\r\n",
        wanted: Refused(400) },
    Case { name: "`Host:` without a value",
        bytes: b"GET /echo.php HTTP/1.1\r\nHost:\r\n\r\n",
        wanted: Refused(400) },
    Case { name: "`Host: a.example`, then `b.example`",
        bytes: b"GET /echo.php HTTP/1.1\r\nHost: a.example\r\nHost: b.example\r\n\r\n",
        wanted: Refused(400) },
    Case { name: "`Host: a.example` twice",
        bytes: b"GET /echo.php HTTP/1.1\r\nHost: a.example\r\nHost: a.example\r\n\r\n",
        wanted: Refused(400) },
    Case { name: "`Host: a.example, b.example`",
        bytes: b"GET /echo.php HTTP/1.1\r\nHost: a.example, b.example\r\n\r\n",
        wanted: Refused(400) },
    Case { name: "`Host: user@a.example`",
        bytes: b"GET /echo.php HTTP/1.1\r\nHost: user@a.example\r\n\r\n",
        wanted: Refused(400) },
    Case { name: "`Host: a.example/x`",
        bytes: b"GET /echo.php HTTP/1.1\r\nHost: a.example/x\r\n\r\n",
        wanted: Refused(400) },
    Case { name: "`Host: a.example:80:81`",
        bytes: b"GET /echo.php HTTP/1.1\r\nHost: a.example:80:81\r\n\r\n",
        wanted: Refused(400) },
    Case { name: "`Host : a.example`",
        bytes: b"GET /echo.php HTTP/1.1\r\nHost : a.example\r\n\r\n",
        wanted: Refused(400) },
    Case { name: "`Host: b.example`, which is another site",
        bytes: b"GET /echo.php HTTP/1.1\r\nHost: b.example\r\n\r\n",
        wanted: Understood("200 `GET /echo.php b.example \"\"` 200 `GET /echo.php?hidden a.example \
                            \"\"`") },
    Case { name: "`Host: c.example`, which is no site",
        bytes: b"GET /echo.php HTTP/1.1\r\nHost: c.example\r\n\r\n",
        wanted: Understood("404 200 `GET /echo.php?hidden a.example \"\"`") },
    Case { name: "`http://a.example/echo.php` with that `Host`",
        bytes: b"GET http://a.example/echo.php HTTP/1.1\r\nHost: a.example\r\n\r\n",
        wanted: Understood("200 `GET /echo.php a.example \"\"` 200 `GET /echo.php?hidden a.example \
                            \"\"`") },
    Case { name: "`http://b.example/echo.php` with `Host: a.example`",
        bytes: b"GET http://b.example/echo.php HTTP/1.1\r\nHost: a.example\r\n\r\n",
        wanted: Refused(400) },
    Case { name: "`http://a.example/echo.php` without `Host`",
        bytes: b"GET http://a.example/echo.php HTTP/1.1\r\n\r\n",
        wanted: Refused(400) },
    Case { name: "`http://user@a.example/echo.php`",
        bytes: b"GET http://user@a.example/echo.php HTTP/1.1\r\nHost: a.example\r\n\r\n",
        wanted: Refused(400) },
    Case { name: "`ftp://a.example/echo.php`",
        bytes: b"GET ftp://a.example/echo.php HTTP/1.1\r\nHost: a.example\r\n\r\n",
        wanted: Refused(400) },
    Case { name: "`GET a.example:80`",
        bytes: b"GET a.example:80 HTTP/1.1\r\nHost: a.example\r\n\r\n",
        wanted: Refused(400) },
    Case { name: "`GET echo.php`",
        bytes: b"GET echo.php HTTP/1.1\r\nHost: a.example\r\n\r\n",
        wanted: Refused(400) },
    Case { name: "`GET *`",
        bytes: b"GET * HTTP/1.1\r\nHost: a.example\r\n\r\n",
        wanted: Refused(400) },
    Case { name: "`CONNECT a.example:80`",
        bytes: b"CONNECT a.example:80 HTTP/1.1\r\nHost: a.example:80\r\n\r\n",
        wanted: Refused(501) },
    Case { name: "`Connection: close`, and a request after it",
        bytes: b"GET /echo.php HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n",
        wanted: Understood("200 `GET /echo.php a.example \"\"`") },
    Case { name: "`Expect: 200-ok`",
        bytes: b"POST /echo.php HTTP/1.1\r\nHost: a.example\r\nExpect: 200-ok\r\nContent-Length: \
                 3\r\n\r\nabc",
        wanted: Refused(417) },
];
