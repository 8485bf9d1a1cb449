<?php
// request: GET {self}
// status: 500
// log: Maximum execution time of 1 second exceeded
// request: GET {self}?quick=1
// expect: quick
if (isset($_GET['quick'])) {
    exit('quick ' . ini_get('max_execution_time'));
}
set_time_limit(1);
while (true) {
    sqrt(2);
}
