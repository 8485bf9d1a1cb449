<?php
// request: GET {self}
// status: 503
// expect: handled RuntimeException
set_exception_handler(function (Throwable $error) {
    http_response_code(503);
    echo 'handled ', $error::class;
});
throw new RuntimeException('caught by the handler');
