<?php
// request: GET {self}
// expect: server: 
ob_start();
phpinfo(INFO_GENERAL);
preg_match('~Server API </td><td class="v">(.*?) </td>~', ob_get_clean(), $match);
echo 'server: ', $match[1];
