<?php
// request: GET {self}
// expect: refused
// log: Header may not contain more than a single header, new line detected
header("X-Split: a\r\nX-Injected: b");
header("X-Nul: a\0b");
echo 'refused';
