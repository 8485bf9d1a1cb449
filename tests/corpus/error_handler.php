<?php
// request: GET {self}
// expect: 2:Undefined variable $nowhere
set_error_handler(function (int $number, string $text) {
    echo "$number:$text\n";
    return true;
});
echo $nowhere, 'done';
