<?php
// request: GET {self}
// expect: "enabled": true
// request: GET {self}
// expect: "cached": true
require 'dump.inc';
$status = opcache_get_status(false);
dump(['enabled' => $status['opcache_enabled'], 'full' => $status['cache_full'], 'cached' => opcache_is_script_cached(__FILE__),
    'keys' => array_keys($status), 'jit' => $status['jit']['enabled'] ?? null,
    'directives' => opcache_get_configuration()['directives']['opcache.memory_consumption']]);
