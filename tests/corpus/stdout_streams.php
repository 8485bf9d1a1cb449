<?php
// request: GET {self}
// expect: by php://output
file_put_contents('php://output', 'by php://output ');
file_put_contents('php://stdout', 'by php://stdout ');
var_dump(defined('STDIN'), defined('STDOUT'), defined('STDERR'));
