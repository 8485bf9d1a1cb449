<?php
// request: GET {self}
// expect: written
// log: straight to standard error
$written = file_put_contents('php://stderr', "straight to standard error\n");
echo 'written ', $written;
