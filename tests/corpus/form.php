<?php
// request: POST {self}?a=get&only=get
// header: Content-Type: application/x-www-form-urlencoded
// header: Cookie: a=cookie; only_cookie=1
// body: a=post&list[]=1&list[]=2&map[k]=v&space+d=%26&utf=%C3%A9
// expect: "a": "post"
require 'dump.inc';
dump(['get' => $_GET, 'post' => $_POST, 'request' => $_REQUEST, 'cookie' => $_COOKIE]);
