<?php
// request: GET {self}
// expect: 0 1 2 3 4 done
for ($i = 0; $i < 5; $i++) {
    echo $i, ' ';
    if (ob_get_level()) {
        ob_flush();
    }
    flush();
}
echo 'done';
