<?php
// request: GET {self}
// header: X-Forwarded-For: 10.9.8.7
// header: X-Forwarded-Proto: https
// header: X-Forwarded-Host: evil.test
// header: Forwarded: for=10.9.8.7;proto=https
// expect: "REMOTE_ADDR": "127.0.0.1"
require 'dump.inc';
dump_server();
