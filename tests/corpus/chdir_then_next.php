<?php
// request: GET {self}
// expect: same
// request: GET {self}
// expect: same
// request: GET /folder/directory.php
// expect: same
// request: GET {self}
// expect: same
echo getcwd() === __DIR__ ? 'same' : getcwd();
chdir('/');
