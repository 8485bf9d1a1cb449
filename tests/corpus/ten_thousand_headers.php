<?php
// request: GET {self}
// expect: 10000
for ($i = 0; $i < 10000; $i++) {
    header("X-Number-$i: $i");
}
echo count(headers_list()) - (int) (ini_get('expose_php'));
