<?php
// request: GET {self}
// header: Authorization: Basic dXNlcjpwYXNzOndvcmQ=
// expect: "PHP_AUTH_USER": "user"
// request: GET {self}
// header: Authorization: Digest username="user", realm="r", nonce="n", uri="/", response="x"
// expect: "PHP_AUTH_DIGEST": "username=
// request: GET {self}
// header: Authorization: Bearer a.b.c
// expect: "HTTP_AUTHORIZATION": "Bearer a.b.c"
// request: GET {self}
// header: Authorization: Basic not-base64!
// expect: HTTP_AUTHORIZATION
// request: GET {self}
// header: Authorization: basic dXNlcjo=
// expect: HTTP_AUTHORIZATION
require 'dump.inc';
dump(array_filter($_SERVER, fn ($name) => str_contains($name, 'AUTH') || $name === 'REMOTE_USER', ARRAY_FILTER_USE_KEY));
