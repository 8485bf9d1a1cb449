<?php
// request: GET {self}
// status: 500
// log: Call to undefined function missing_function()
// request: GET {self}?display=1
// expect: Call to undefined function missing_function()
ini_set('display_errors', $_GET['display'] ?? '0');
missing_function();
