<?php
// request: GET {self}
// status: 401
// expect: who are you
header('WWW-Authenticate: Basic realm="corpus"');
http_response_code(401);
echo 'who are you';
