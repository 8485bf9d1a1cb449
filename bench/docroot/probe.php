<?php

// What the benchmark compares between servers before it measures them.
$sapi_modules = ['apache2handler', 'pcntl', 'cgi-fcgi', 'maitred'];
$opcache = function_exists('opcache_get_status') ? opcache_get_status(false) : false;
header('Content-Type: application/json');
echo json_encode([
    'version' => PHP_VERSION,
    'opcache' => $opcache !== false && $opcache['opcache_enabled'],
    'jit' => $opcache !== false && ($opcache['jit']['on'] ?? false),
    'php.ini' => php_ini_loaded_file(),
    'memory_limit' => ini_get('memory_limit'),
    'output_buffering' => ini_get('output_buffering'),
    'extensions' => array_values(array_diff(get_loaded_extensions(), $sapi_modules)),
]);
