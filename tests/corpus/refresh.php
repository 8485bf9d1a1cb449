<?php
// request: GET {self}
// expect: x
header('Refresh: 5; url=/next');
header('Expires: Thu, 01 Jan 1970 00:00:00 GMT');
header('Last-Modified: Thu, 01 Jan 2026 00:00:00 GMT');
header('ETag: "abc"');
echo 'x';
