<?php
// request: GET {self}
// header: User-Agent: corpus
// header: X-Mixed-CASE: 1
// header: x-lower: 2
// header: Content-Type: text/x-odd
// header: Authorization: Bearer z
// expect: "same": true
// request: POST {self}
// header: Content-Type: text/plain
// body: hello
// expect: "same": true
require 'dump.inc';
$all = getallheaders();
$same = $all === apache_request_headers();
ksort($all);
dump(['all' => $all, 'same' => $same, 'functions' => array_map('function_exists',
    ['getallheaders', 'apache_request_headers', 'apache_response_headers', 'fastcgi_finish_request', 'fpm_get_status',
        'litespeed_finish_request', 'headers_send', 'cli_set_process_title', 'virtual', 'apache_note'])]);
