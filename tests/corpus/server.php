<?php
// request: GET {self}
// expect: "GATEWAY_INTERFACE": "CGI\/1.1"
// request: GET {self}?a=1&b=%20c
// header: User-Agent: corpus/1.0
// header: Accept: */*
// header: Accept-Language: en, de;q=0.5
// header: Referer: http://corpus.test/before?x=y
// header: X-Custom-Header: some value
// expect: "QUERY_STRING": "a=1&b=%20c"
// request: POST {self}
// header: Content-Type: application/x-www-form-urlencoded
// body: a=1&b=2
// expect: "CONTENT_LENGTH": "7"
// request: GET {self}
// version: HTTP/1.0
// expect: "SERVER_PROTOCOL": "HTTP\/1.0"
// request: GET {self}
// header: Host: corpus.test:8080
// expect: "HTTP_HOST"
// request: GET http://corpus.test{self}?absolute
// expect: "QUERY_STRING": "absolute"
require 'dump.inc';
dump_server();
