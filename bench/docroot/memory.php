<?php

// Takes ?mb=… megabytes of its own for ?ms=… milliseconds.
$mine = str_repeat('x', 1048576 * (int) $_GET['mb']);
usleep(1000 * (int) $_GET['ms']);
echo strlen($mine) >> 20, "\n";
