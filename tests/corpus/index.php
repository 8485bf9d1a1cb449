<?php
// request: GET /
// expect: "REQUEST_URI": "\/"
// request: GET /no/such/path?a=b
// expect: "SCRIPT_NAME": "\/index.php"
// request: GET /no-such-path
// expect: "SCRIPT_NAME": "\/index.php"
// request: GET /index.php/after
// expect: "PATH_INFO": "\/after"
// request: POST /posted/pretty/url
// header: Content-Type: application/x-www-form-urlencoded
// body: a=1
// expect: "REQUEST_METHOD": "POST"
// request: GET /encoded%20path/%C3%A9?x=%20
// expect: "SCRIPT_NAME": "\/index.php"
require 'dump.inc';
dump_server();
