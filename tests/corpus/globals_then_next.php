<?php
// request: GET {self}
// expect: int(1)
// request: GET {self}
// expect: int(1)
class Holder
{
    public static int $count = 0;
}
Holder::$count++;
$GLOBALS['seen'] = ($GLOBALS['seen'] ?? 0) + 1;
define('CORPUS_ONCE', 1);
var_dump(Holder::$count, $GLOBALS['seen']);
