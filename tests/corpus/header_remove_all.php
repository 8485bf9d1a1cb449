<?php
// request: GET {self}
// expect: []
header('X-One: 1');
setcookie('a', 'b');
header_remove();
echo json_encode(headers_list());
