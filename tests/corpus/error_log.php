<?php
// request: GET {self}
// expect: logged
// log: a line for the log, 42
// log: two lines, first
// log: two lines, second
error_log('a line for the log, ' . 42);
error_log("two lines, first\ntwo lines, second");
echo 'logged';
