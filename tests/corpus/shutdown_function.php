<?php
// request: GET {self}
// expect: body first second nested
// request: GET {self}?exit=1
// expect: exit first second nested
// request: GET {self}?throw=1
// status: 500
// expect: first second nested
register_shutdown_function(function () {
    echo ' first';
});
register_shutdown_function(function (string $word) {
    echo " $word";
    register_shutdown_function(function () {
        echo ' nested ', basename(getcwd()) !== '' ? 'cwd' : 'none';
    });
}, 'second');
if (isset($_GET['exit'])) {
    exit('exit');
}
if (isset($_GET['throw'])) {
    throw new Exception('seen by shutdown functions');
}
echo 'body';
