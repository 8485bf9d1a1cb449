<?php
// request: GET {self}?line=HTTP/1.1+404+Gone+Fishing
// status: 404
// expect: 404
// request: GET {self}?line=HTTP/1.0+410+Gone
// status: 410
// expect: 410
// request: GET {self}?line=Status:+403+Never
// status: 403
// expect: body
// request: GET {self}?line=HTTP/2+202
// status: 202
// expect: 202
header($_GET['line']);
echo 'body ', http_response_code();
