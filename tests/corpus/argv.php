<?php
// request: GET {self}?one+two+three
// expect: {
// request: GET {self}?a=b+c
// expect: {
require 'dump.inc';
dump(['argv' => $_SERVER['argv'] ?? 'absent', 'argc' => $_SERVER['argc'] ?? 'absent',
    'global' => $GLOBALS['argv'] ?? 'absent', 'register' => ini_get('register_argc_argv')]);
