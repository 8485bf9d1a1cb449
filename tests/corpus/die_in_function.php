<?php
// request: GET {self}
// expect: one dead
// request: GET {self}
// expect: one dead
function inner(): never
{
    try {
        die('dead ');
    } finally {
        echo 'never';
    }
}
echo 'one ';
inner();
