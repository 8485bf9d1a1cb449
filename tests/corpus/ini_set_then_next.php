<?php
// request: GET {self}
// expect: 10
// request: GET {self}
// expect: 10
echo ini_get('precision'), ' ', ini_get('date.timezone'), ' ', setlocale(LC_ALL, 0), ' ', mb_internal_encoding();
ini_set('precision', '3');
ini_set('date.timezone', 'Europe/Berlin');
setlocale(LC_ALL, 'C.UTF-8');
mb_internal_encoding('ISO-8859-1');
