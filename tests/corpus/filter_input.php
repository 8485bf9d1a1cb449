<?php
// request: POST {self}?number=42&bad=x
// header: Content-Type: application/x-www-form-urlencoded
// header: Cookie: c=1
// body: p=%3Cb%3E
// expect: "method": "POST"
require 'dump.inc';
dump(['method' => filter_input(INPUT_SERVER, 'REQUEST_METHOD'), 'host' => filter_input(INPUT_SERVER, 'HTTP_HOST'),
    'self' => filter_input(INPUT_SERVER, 'PHP_SELF'), 'number' => filter_input(INPUT_GET, 'number', FILTER_VALIDATE_INT),
    'bad' => filter_input(INPUT_GET, 'bad', FILTER_VALIDATE_INT), 'cookie' => filter_input(INPUT_COOKIE, 'c'),
    'post' => filter_input(INPUT_POST, 'p', FILTER_SANITIZE_SPECIAL_CHARS), 'none' => filter_input(INPUT_GET, 'none'),
    'env' => filter_input(INPUT_ENV, 'PATH'), 'has' => filter_has_var(INPUT_SERVER, 'REQUEST_URI')]);
