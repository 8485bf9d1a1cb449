<?php
// request: GET {self}
// expect: answered
// log: worked on after the answer
header('X-Before: yes');
echo 'answered';
$finished = fastcgi_finish_request();
echo ' never seen';
header('X-After: no');
error_log('worked on after the answer: ' . var_export($finished, true) . ' ' . connection_status());
