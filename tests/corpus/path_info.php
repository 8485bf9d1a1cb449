<?php
// request: GET {self}/some/path?x=1
// expect: "PATH_INFO": "\/some\/path"
// request: GET {self}/
// expect: "PATH_INFO": "\/"
// request: GET {self}/with%20space/%C3%A9
// expect: "PATH_INFO": "\/with space
// request: GET {self}/other.php/tail
// expect: other.php
// request: GET {self}/a//b
// expect: "PATH_INFO"
// request: GET {self}/a/../b
// expect: "PATH_INFO"
require 'dump.inc';
dump_server();
