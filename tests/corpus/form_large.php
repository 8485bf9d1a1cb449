<?php
// request: POST {self}
// header: Content-Type: application/x-www-form-urlencoded
// body: a=
// fill: 2097152 x
// expect: "length": 2097152
require 'dump.inc';
dump(['length' => strlen($_POST['a']), 'input' => strlen(file_get_contents('php://input')), 'hash' => md5($_POST['a']),
    'CONTENT_LENGTH' => $_SERVER['CONTENT_LENGTH']]);
