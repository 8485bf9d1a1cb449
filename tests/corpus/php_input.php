<?php
// request: POST {self}
// header: Content-Type: application/octet-stream
// body: \x00\x01 raw \xff bytes
// expect: "length": 14
// request: POST {self}
// header: Content-Type: application/x-www-form-urlencoded
// body: a=1&b=two
// expect: "length": 9
// request: POST {self}
// header: Content-Type: multipart/form-data; boundary=xyz
// body: --xyz\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n--xyz--\r\n
// expect: "length": 0
// request: GET {self}
// expect: "length": 0
require 'dump.inc';
$first = file_get_contents('php://input');
$second = file_get_contents('php://input');
dump(['length' => strlen($first), 'again' => $first === $second, 'hex' => bin2hex($first), 'post' => $_POST]);
