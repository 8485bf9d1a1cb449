<?php
// request: GET {self}
// expect: "Core"
require 'dump.inc';
$names = get_loaded_extensions();
sort($names);
$zend = get_loaded_extensions(true);
dump(['extensions' => $names, 'zend' => $zend]);
