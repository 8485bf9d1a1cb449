<?php
// request: GET {self}
// status: 404
// request: GET {self}?echo=1
// status: 404
# A flush while an output buffer holds the page sends no header (before PHP 8.4).
ob_start();
if (isset($_GET['echo'])) {
    echo 'a page';
}
flush();
header('X-Late: 1');
setcookie('late', 'cookie');
http_response_code(404);
echo 'end';
