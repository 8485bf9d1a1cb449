<?php
// request: GET {self}
// expect: 30 true 77
// request: GET {self}
// expect: 30 true 77
echo ini_get('max_execution_time'), ' ', var_export(set_time_limit(77), true), ' ', ini_get('max_execution_time');
