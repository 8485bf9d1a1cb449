<?php
// request: GET {self}
// expect: "memory_limit": "128M"
require 'dump.inc';
$all = ini_get_all(null, false);
dump($all);
