<?php
// request: GET {self}
// expect: untyped
ini_set('default_mimetype', '');
echo 'untyped';
