<?php
// request: GET {self}
// expect: x
header('X-Accel-Buffering: no');
header('X-Accel-Expires: 0');
header('X-Accel-Limit-Rate: 1000000');
header('X-Accel-Charset: utf-8');
header('X-Other: stays');
echo 'x';
