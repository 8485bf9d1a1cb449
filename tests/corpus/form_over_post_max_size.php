<?php
// request: POST {self}
// header: Content-Type: application/x-www-form-urlencoded
// body: a=
// fill: 1048576 0123456789
// expect: "post": []
// log: POST Content-Length of 10485762 bytes exceeds the limit of 8388608 bytes
require 'dump.inc';
dump(['post' => $_POST, 'files' => $_FILES, 'input' => strlen(file_get_contents('php://input'))]);
