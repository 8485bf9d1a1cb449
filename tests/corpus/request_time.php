<?php
// request: GET {self}
// expect: {"int":true,"float":true,"near":true,"same":true}
echo json_encode(['int' => is_int($_SERVER['REQUEST_TIME']), 'float' => is_float($_SERVER['REQUEST_TIME_FLOAT']),
    'near' => abs(microtime(true) - $_SERVER['REQUEST_TIME_FLOAT']) < 5,
    'same' => (int) $_SERVER['REQUEST_TIME_FLOAT'] === $_SERVER['REQUEST_TIME']]);
