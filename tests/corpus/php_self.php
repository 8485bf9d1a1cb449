<?php
// request: GET {self}
// expect: "PHP_SELF": "\/php_self.php"
// request: GET {self}/extra?x
// expect: "PHP_SELF": "\/php_self.php\/extra"
// request: GET /./php_self.php
// expect: PHP_SELF
// request: GET //php_self.php
// expect: PHP_SELF
// request: GET /user_ini/../php_self.php
// expect: PHP_SELF
// request: GET /%70hp_self.php
// expect: PHP_SELF
require 'dump.inc';
$names = ['PHP_SELF', 'SCRIPT_NAME', 'SCRIPT_FILENAME', 'DOCUMENT_URI', 'REQUEST_URI', 'DOCUMENT_ROOT', 'PATH_INFO',
    'PATH_TRANSLATED', 'ORIG_PATH_INFO', 'ORIG_SCRIPT_NAME', 'ORIG_SCRIPT_FILENAME'];
dump(array_combine($names, array_map(fn ($name) => $_SERVER[$name] ?? 'absent', $names)));
