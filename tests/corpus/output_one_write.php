<?php
// request: GET {self}
// expect: xxxx
// request: HEAD {self}
echo str_repeat('x', 3 * 1024 * 1024 + 7);
