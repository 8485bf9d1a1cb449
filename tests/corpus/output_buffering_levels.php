<?php
// request: GET {self}
// expect: "level"
require 'dump.inc';
dump(['level' => ob_get_level(), 'status' => ob_get_status(true), 'ini' => ini_get('output_buffering'),
    'implicit' => ini_get('implicit_flush')]);
