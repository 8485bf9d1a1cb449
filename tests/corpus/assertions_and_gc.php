<?php
// request: GET {self}
// expect: {"assertions"
echo json_encode(['assertions' => ini_get('zend.assertions'), 'gc' => gc_enabled(), 'level' => error_reporting(),
    'html' => ini_get('html_errors'), 'log' => ini_get('log_errors'), 'display' => ini_get('display_errors')]);
