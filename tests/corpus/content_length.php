<?php
// request: GET {self}
// compare-header: Content-Length
// expect: 0123456789
header('Content-Length: 10');
echo '0123456789';
