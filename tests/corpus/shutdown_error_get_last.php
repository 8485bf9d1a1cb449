<?php
// request: GET {self}
// status: 500
// expect: last: Uncaught Exception: for the shutdown function
register_shutdown_function(function () {
    echo 'last: ', strtok(error_get_last()['message'], "\n");
});
throw new Exception('for the shutdown function');
