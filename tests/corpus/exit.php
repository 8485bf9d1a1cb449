<?php
// request: GET {self}
// expect: before
// request: GET {self}?with=message
// expect: message
// request: GET {self}?with=3
// expect: before
echo 'before ';
$with = $_GET['with'] ?? null;
exit(is_numeric($with) ? (int) $with : $with);
