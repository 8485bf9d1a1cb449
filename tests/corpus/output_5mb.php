<?php
// request: GET {self}
// expect: line 1
for ($i = 1; $i <= 50000; $i++) {
    echo str_pad("line $i", 99, '.'), "\n";
}
