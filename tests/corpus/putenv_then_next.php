<?php
// request: GET {self}
// expect: false
// request: GET {self}
// expect: false
var_dump(getenv('CORPUS_LEFT_BEHIND'));
putenv('CORPUS_LEFT_BEHIND=yes');
