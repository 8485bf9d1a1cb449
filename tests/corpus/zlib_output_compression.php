<?php
// request: GET {self}
// header: Accept-Encoding: gzip, deflate
// expect: \x1f\x8b
ini_set('zlib.output_compression', '1');
header('Content-Type: text/html');
echo str_repeat('compress me ', 500);
