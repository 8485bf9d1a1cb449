<?php
// request: GET {self}
// header: Cookie: plain=1; encoded=%20%26; arr[a]=x; arr[b]=y; dotted.name=d; empty=; plain=2
// expect: "plain": "1"
// request: GET {self}
// header: Cookie: one=1
// header: Cookie: two=2
// expect: "two": "2"
// request: GET {self}
// expect: "cookies": []
require 'dump.inc';
setcookie('simple', 'value');
setcookie('full', 'a b&c', ['expires' => 2000000000, 'path' => '/p', 'domain' => 'corpus.test', 'secure' => true,
    'httponly' => true, 'samesite' => 'Lax']);
setrawcookie('raw', 'a%20b');
setcookie('gone', '', 1);
dump(['cookies' => $_COOKIE, 'raw' => $_SERVER['HTTP_COOKIE'] ?? 'absent']);
