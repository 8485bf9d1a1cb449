<?php
// request: POST {self}
// header: Content-Type: application/x-www-form-urlencoded
// expect: "length": "0"
// request: POST {self}
// expect: "post": []
// request: POST {self}
// header: Content-Type: multipart/form-data; boundary=xyz
// expect: "post": []
// request: POST {self}
// header: Content-Type: multipart/form-data
// body: no boundary
// expect: "post": []
// log: Missing boundary in multipart/form-data POST data
require 'dump.inc';
dump(['post' => $_POST, 'files' => $_FILES, 'input' => file_get_contents('php://input'),
    'length' => $_SERVER['CONTENT_LENGTH'] ?? 'absent', 'type' => $_SERVER['CONTENT_TYPE'] ?? 'absent']);
