<?php
// request: GET {self}
// header: Proxy: http://evil.test:8080
// expect: "HTTP_PROXY": "absent"
require 'dump.inc';
dump(['HTTP_PROXY' => $_SERVER['HTTP_PROXY'] ?? 'absent', 'getenv' => getenv('HTTP_PROXY'), 'headers' => getallheaders()]);
