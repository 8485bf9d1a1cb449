<?php
// request: GET {self}
// expect: sent
header('X-Large: ' . str_repeat('y', 100000));
echo 'sent';
