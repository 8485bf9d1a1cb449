<?php
// request: PUT {self}
// header: Content-Type: application/x-www-form-urlencoded
// body: a=1
// expect: "method": "PUT"
// request: DELETE {self}?id=7
// expect: "method": "DELETE"
// request: PATCH {self}
// body: patch
// expect: "input": "patch"
// request: OPTIONS {self}
// expect: "method": "OPTIONS"
// request: PROPFIND {self}
// expect: "method": "PROPFIND"
// request: DELETE {self}
// body: with a body
// expect: "input": "with a body"
// request: GET {self}
// body: a body on GET
// expect: "method": "GET"
// request: BREW {self}
// expect: "method": "BREW"
// request: M-SEARCH {self}
// expect: "method": "M-SEARCH"
require 'dump.inc';
dump(['method' => $_SERVER['REQUEST_METHOD'], 'input' => file_get_contents('php://input'), 'post' => $_POST,
    'length' => $_SERVER['CONTENT_LENGTH'] ?? 'absent', 'get' => $_GET]);
