<?php
// request: POST {self}
// header: Content-Type: text/plain
// header: Expect: 100-continue
// body: sent at once
// expect: "input": "sent at once"
require 'dump.inc';
dump(['input' => file_get_contents('php://input'), 'expect' => $_SERVER['HTTP_EXPECT'] ?? 'absent']);
