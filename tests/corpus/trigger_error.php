<?php
// request: GET {self}
// status: 500
// log: PHP Notice:  a notice in
// log: PHP Warning:  a warning in
// log: PHP Fatal error:  a user error in
trigger_error('a notice', E_USER_NOTICE);
trigger_error('a warning', E_USER_WARNING);
trigger_error('a user error', E_USER_ERROR);
echo 'not reached';
