<?php
// request: GET {self}
// header: X-Header: from the client
// expect: "greeting": "hello"
require 'dump.inc';
$all = getenv();
ksort($all);
dump(['greeting' => getenv('CORPUS_GREETING'), 'server' => $_SERVER['CORPUS_GREETING'] ?? 'absent', '_ENV' => $_ENV,
    'PATH' => getenv('PATH'), 'HOME' => getenv('HOME'), 'USER' => getenv('USER'), 'names' => array_keys($all),
    'HTTP_X_HEADER' => getenv('HTTP_X_HEADER'), 'local' => getenv('CORPUS_GREETING', true),
    'REQUEST_METHOD' => getenv('REQUEST_METHOD')]);
