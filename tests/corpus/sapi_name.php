<?php
// request: GET {self}
// expect: fpm-fcgi
echo php_sapi_name(), ' ', PHP_SAPI, ' ', PHP_VERSION, ' ', PHP_BINARY === '' ? 'no binary' : 'binary', ' ', PHP_ZTS;
