<?php
// request: GET {self}
// expect: done
// log: PHP Warning:  Undefined variable $nowhere in
// log: PHP Warning:  Undefined array key "nothing"
// request: GET {self}?display=1
// expect: Undefined variable $nowhere
ini_set('display_errors', $_GET['display'] ?? '0');
echo $nowhere;
$empty = [];
echo $empty['nothing'];
echo 'done';
