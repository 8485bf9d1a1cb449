<?php
// request: GET {self}
// header: TE: trailers
// header: Upgrade: websocket
// header: Keep-Alive: timeout=5
// header: Connection: close, X-Hop
// header: X-Hop: 1
// expect: HTTP_HOST
header('Connection: upgrade');
header('Keep-Alive: timeout=1');
header('X-End: to-end');
require 'dump.inc';
dump(array_filter($_SERVER, fn ($name) => str_starts_with($name, 'HTTP_'), ARRAY_FILTER_USE_KEY));
