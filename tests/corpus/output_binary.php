<?php
// request: GET {self}
// expect: \x00\x01\x02
header('Content-Type: application/octet-stream');
for ($i = 0; $i < 256; $i++) {
    echo chr($i);
}
