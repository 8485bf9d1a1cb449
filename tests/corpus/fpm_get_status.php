<?php
// request: GET {self}
// expect: "pool"
require 'dump.inc';
$status = fpm_get_status();
dump(['keys' => array_keys($status), 'pool' => $status['pool'], 'manager' => $status['process-manager'],
    'types' => array_map('gettype', $status), 'process' => array_keys($status['procs'][0] ?? []),
    'process types' => array_map('gettype', $status['procs'][0] ?? []), 'active' => $status['active-processes'],
    'state' => $status['procs'][0]['state'] ?? null, 'method' => $status['procs'][0]['request-method'] ?? null,
    'uri' => $status['procs'][0]['request-uri'] ?? null, 'script' => basename($status['procs'][0]['script'] ?? '')]);
