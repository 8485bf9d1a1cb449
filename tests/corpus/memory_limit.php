<?php
// request: GET {self}
// status: 500
// log: PHP Fatal error:  Allowed memory size of 8388608 bytes exhausted
// request: GET {self}?small=1
// expect: small
if (isset($_GET['small'])) {
    exit('small');
}
ini_set('memory_limit', '8M');
$hoard = str_repeat('x', 32 * 1024 * 1024);
echo strlen($hoard);
