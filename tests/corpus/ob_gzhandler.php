<?php
// request: GET {self}
// header: Accept-Encoding: gzip
// expect: \x1f\x8b
// request: GET {self}
// header: Accept-Encoding: identity
// expect: hello hello
// request: HEAD {self}
// header: Accept-Encoding: gzip
ob_start('ob_gzhandler');
echo str_repeat('hello ', 1000);
