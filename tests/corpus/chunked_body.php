<?php
// request: POST {self}
// header: Content-Type: application/x-www-form-urlencoded
// body: a=1&b=two&c=
// fill: 40000 xyz
// chunked: 1000
// expect: "a": "1"
// request: POST {self}
// header: Content-Type: text/plain
// body: short
// chunked: 1
// expect: "input": 5
// request: POST {self}
// chunked: 1
// expect: "input": 0
require 'dump.inc';
dump(['a' => $_POST['a'] ?? null, 'c' => strlen($_POST['c'] ?? ''), 'input' => strlen(file_get_contents('php://input')),
    'CONTENT_LENGTH' => $_SERVER['CONTENT_LENGTH'] ?? 'absent',
    'HTTP_TRANSFER_ENCODING' => $_SERVER['HTTP_TRANSFER_ENCODING'] ?? 'absent']);
