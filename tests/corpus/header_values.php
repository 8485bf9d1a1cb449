<?php
// request: GET {self}
// header: X-Latin: \xe9\xff
// header: X-Tab: a\tb
// header: X-Empty: 
// header: X-Padded:    padded   
// header: X-Quote: "a\\"b"
// expect: HTTP_X_LATIN
// request: GET {self}
// header: X-Twice: one
// header: X-Twice: two
// header: Accept: text/html
// header: Accept: text/plain
// header: X-Forwarded-For: 10.0.0.1
// header: X-Forwarded-For: 10.0.0.2
// expect: HTTP_X_TWICE
require 'dump.inc';
$headers = array_filter($_SERVER, fn ($name) => str_starts_with($name, 'HTTP_'), ARRAY_FILTER_USE_KEY);
dump(array_map(fn ($value) => [bin2hex($value), $value], $headers));
