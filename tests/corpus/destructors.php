<?php
// request: GET {self}
// expect: body destroyed
class Last
{
    public function __destruct()
    {
        echo ' destroyed ', basename(getcwd()) === basename(__DIR__) ? 'here' : getcwd();
    }
}
$last = new Last();
echo 'body';
