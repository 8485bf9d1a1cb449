<?php
// request: GET {self}
// status: 500
// log: PHP Fatal error:  Uncaught RuntimeException: not caught
// request: GET {self}?display=1
// expect: Uncaught RuntimeException: not caught
// log: thrown in
// request: GET {self}?after=output
// expect: output
ini_set('display_errors', $_GET['display'] ?? '0');
if (isset($_GET['after'])) {
    echo 'output';
    ob_flush();
    flush();
}
throw new RuntimeException('not caught');
