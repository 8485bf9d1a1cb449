<?php
// request: GET {self}
// expect: php.ini
echo php_ini_loaded_file(), "\n", php_ini_scanned_files(), get_cfg_var('cfg_file_path');
