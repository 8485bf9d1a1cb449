<?php
// request: GET {self}
// expect: www-data
$user = posix_getpwuid(posix_geteuid())['name'];
echo $user, ' ', get_current_user(), ' ', decoct(umask()), ' ', count(posix_getgroups());
