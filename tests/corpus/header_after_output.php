<?php
// request: GET {self}
// expect: sent
// log: Cannot modify header information - headers already sent by (output started at
while (ob_get_level()) {
    ob_end_flush();
}
echo 'body ';
flush();
header('X-Late: no');
http_response_code(500);
echo headers_sent($file, $line) ? 'sent ' . basename($file) . ":$line" : 'not sent';
