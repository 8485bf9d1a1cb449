<?php
// request: POST {self}
// header: Content-Type: application/x-www-form-urlencoded
// fill: 1500 a[]=1&
// expect: "count": 1001
// log: Input variables exceeded 1000
require 'dump.inc';
dump(['count' => count($_POST['a'])]);
