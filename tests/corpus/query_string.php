<?php
// request: GET {self}?a[]=1&a[]=2&b[x][y]=z&c.d=e&f%20g=h&=nothing&flag
// expect: "flag": ""
// request: GET {self}?q=%00%ff%C3%A9+%2B;&r=a%26b&%5B=x
// expect: "q"
// request: GET {self}?"quote"<tag>|{brace}\\^`
// expect: QUERY_STRING
// request: GET {self}?
// expect: "QUERY_STRING": ""
// request: GET {self}?\xc3\xa9=1
// expect: QUERY_STRING
require 'dump.inc';
dump(['get' => $_GET, 'QUERY_STRING' => $_SERVER['QUERY_STRING'], 'REQUEST_URI' => $_SERVER['REQUEST_URI'],
    'request' => $_REQUEST, 'argv' => $_SERVER['argv'] ?? 'absent', 'argc' => $_SERVER['argc'] ?? 'absent']);
