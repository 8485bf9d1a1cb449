<?php
// request: GET {self}
// expect: 0123456789abcdef
$file = tempnam(sys_get_temp_dir(), 'corpus');
file_put_contents($file, str_repeat('0123456789abcdef', 65536));
header('Content-Type: application/octet-stream');
readfile($file);
unlink($file);
