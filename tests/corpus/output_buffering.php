<?php
// request: GET {self}
// expect: OUTER[INNER]
ob_start(fn ($text) => strtoupper($text));
echo 'outer[';
ob_start();
echo 'inner';
$inner = ob_get_clean();
echo $inner, ']', ob_get_level();
header('X-Still-Possible: yes');
