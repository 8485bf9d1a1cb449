<?php
// request: HEAD {self}
// request: GET {self}
// expect: the body
header('X-Method: ' . $_SERVER['REQUEST_METHOD']);
echo 'the body';
