<?php
// request: GET {self}
// expect: Deprecated
error_reporting(E_ALL);
ini_set('display_errors', '1');
echo strlen(null), "\n";
