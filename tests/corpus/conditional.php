<?php
// request: GET {self}
// header: If-None-Match: "abc"
// header: If-Modified-Since: Fri, 02 Jan 2026 00:00:00 GMT
// expect: the script decides
// request: GET {self}
// header: Range: bytes=0-2
// expect: the script decides
header('ETag: "abc"');
header('Last-Modified: Thu, 01 Jan 2026 00:00:00 GMT');
echo 'the script decides';
