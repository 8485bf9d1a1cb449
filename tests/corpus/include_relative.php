<?php
// request: GET {self}
// expect: included from folder
set_include_path(get_include_path() . PATH_SEPARATOR . __DIR__ . '/folder');
include './folder/part.inc';
include 'part.inc';
