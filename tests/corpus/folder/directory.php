<?php
// request: GET {self}
// expect: folder
// request: GET /directory_root.php
// expect: corpus root
echo basename(__DIR__), ' ', getcwd() === __DIR__ ? 'same' : getcwd(), ' ', basename(__FILE__), ' ', basename(get_included_files()[0]);
