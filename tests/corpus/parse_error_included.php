<?php
// request: GET {self}
// expect: ParseError
try {
    include 'broken.inc';
} catch (ParseError $error) {
    echo 'ParseError on line ', $error->getLine();
}
