<?php
// request: POST {self}
// header: Content-Type: application/json
// body: {"name": "J\xc3\xbcrgen", "list": [1, 2.5, null]}
// expect: "name"
// request: PUT {self}
// header: Content-Type: application/json; charset=utf-8
// body: [1]
// expect: "post": []
require 'dump.inc';
dump(['decoded' => json_decode(file_get_contents('php://input'), true), 'post' => $_POST,
    'type' => $_SERVER['CONTENT_TYPE'], 'http_type' => $_SERVER['HTTP_CONTENT_TYPE'] ?? 'absent',
    'http_length' => $_SERVER['HTTP_CONTENT_LENGTH'] ?? 'absent']);
