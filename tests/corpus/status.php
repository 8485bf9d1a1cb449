<?php
// request: GET {self}?code=201
// status: 201
// expect: 201
// request: GET {self}?code=404
// status: 404
// expect: 404
// request: GET {self}?code=418
// status: 418
// expect: 418
// request: GET {self}?code=500
// status: 500
// expect: 500
// request: GET {self}?code=503
// status: 503
// expect: 503
// request: GET {self}?code=299
// status: 299
// expect: 299
// request: GET {self}?code=599
// status: 599
// expect: 599
$before = http_response_code();
http_response_code((int) $_GET['code']);
echo var_export($before, true), ' ', http_response_code();
